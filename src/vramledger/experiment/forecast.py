"""What a stage of load will come to, told before it is sent: the same requests on the simulator, with a step model fitted to the stages before.

Pure: what was measured comes in, figures go out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vramledger.admission.protocol import AdmissionPolicy
from vramledger.errors import InputError
from vramledger.experiment.foretold import foretold_figures, foretold_rows
from vramledger.experiment.result import LatencyModel, LoadFigures
from vramledger.experiment.served import Served
from vramledger.experiment.timed_run import timed_run
from vramledger.simulation.first_step import first_step
from vramledger.simulation.run import simulate
from vramledger.simulation.settings import SimulationSettings, Slo
from vramledger.simulation.stages_fit import UNBOUND, fit_stages
from vramledger.simulation.step_fit import FEWEST
from vramledger.simulation.step_model import PS_PER_NS, StepModel
from vramledger.simulation.timed_run import TimedRun
from vramledger.workload.request import Request, WorkloadHeader

MOST_TOKENS = 30_000
"""So many tokens of output are simulated again and again in a fit, of each stage its first: more tell little more and take long."""
SAMPLES = 2_048


class StageRun(Struct, frozen=True, kw_only=True):
    """A stage that was sent: its requests, and the row of each."""

    name: str
    header: WorkloadHeader
    requests: tuple[Request, ...]
    served: tuple[Served, ...]


class Foretold(Struct, frozen=True, kw_only=True):
    """A simulated stage: its figures, the row of each request as a live engine's would be, and what the simulator said."""

    figures: LoadFigures
    served: tuple[Served, ...]
    notes: tuple[str, ...] = ()


class Forecaster:
    """Foretells an engine that schedules by `settings`.

    `settings.step` counts as known with `knows_step` (a roofline, an earlier fit); else nothing is foretold before the first fit.
    `least` is what no constant of a step falls below. `model` goes on from an earlier fit. `policies` is admission before
    the engine, as `simulation.run.simulate` takes it.
    """

    def __init__(
        self,
        settings: SimulationSettings,
        *,
        knows_step: bool = False,
        least: StepModel = UNBOUND,
        model: LatencyModel | None = None,
        policies: Callable[[int], AdmissionPolicy] | None = None,
    ) -> None:
        self._settings = settings
        self._knows_step = knows_step
        self._least = least
        self._policies = policies
        self.model = model

    @property
    def step(self) -> StepModel | None:
        """What a step is taken to last; None while nothing tells."""
        if self.model is not None:
            return self.model.step
        return self._settings.step if self._knows_step else None

    def fit(self, runs: Sequence[StageRun]) -> LatencyModel | None:
        """Fits to all of `runs`, whose rows of the last third of each are held out for the error. None, and what was known stays, where
        fewer than eight requests of them came to their end."""
        parts = _timed(runs)
        if sum(len(part.known) for part in parts) < FEWEST:
            return self.model
        try:
            known = () if self.step is None else (self.step,)
            found = fit_stages(
                parts,
                self._settings,
                starts=(*known, first_step(parts)),
                least=self._least,
                outside_ps=0 if self.model is None else self.model.outside_ns * PS_PER_NS,
                source=", ".join(run.name for run in runs),
            )
        except InputError:
            return self.model
        self.model = LatencyModel(
            step=found.step,
            outside_ns=found.outside_ps // PS_PER_NS,
            stages=tuple(run.name for run in runs),
            fitted_requests=found.fitted_requests,
            held_out_requests=found.held_out_requests,
            relative_error=found.step.relative_error,
        )
        return self.model

    def forecast(self, header: WorkloadHeader, requests: Sequence[Request], slo: Slo) -> LoadFigures | None:
        """The figures that the requests will come to; None while nothing tells how long a step lasts."""
        found = self.foretell(header, requests, slo)
        return None if found is None else found.figures

    def foretell(self, header: WorkloadHeader, requests: Sequence[Request], slo: Slo) -> Foretold | None:
        """The same with its rows. Raises InputError where the settings contradict themselves, or the simulator is not installed."""
        step = self.step
        if step is None:
            return None
        from vramledger.workload.columns import Workload, columns_of

        outside_ns = 0 if self.model is None else self.model.outside_ns
        late = [
            request if request.parent is None else replace(request, pause_ns=request.pause_ns + outside_ns)
            for request in requests
        ]
        run, columns = simulate(
            Workload.of(header, columns_of(late)),
            replace(self._settings, step=step, slo=slo),
            samples=SAMPLES,
            policies=self._policies,
        )
        if columns is None:
            raise InputError("the simulator kept no outcomes")
        served = foretold_rows(requests, columns.outcomes(), outside_ns)
        return Foretold(
            figures=foretold_figures(served, run, self._settings.layout, slo), served=served, notes=run.notes
        )


def _timed(runs: Sequence[StageRun]) -> list[TimedRun]:
    """The runs by their first requests, so many that their output is no more than `MOST_TOKENS` in all; short runs leave their share to others."""
    left, found = MOST_TOKENS, {}
    for place, run in enumerate(sorted(runs, key=lambda run: len(run.served))):
        share = left // (len(runs) - place)
        made = timed_run(run.header, run.requests, run.served, most_tokens=share)
        left -= min(share, sum(request.output_tokens for request in made.requests))
        found[run.name] = made
    return [found[run.name] for run in runs]
