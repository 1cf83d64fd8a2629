// The tab Plan: a question put with sliders, answered as they move.
import { html, useEffect, useRef, useState } from "vl/lib/dom";
import { run, upload } from "vl/lib/api";
import { DeviceControl, EngineControls, FlagControls, FormatControls, ModelControls, ParallelControls, SizeControls } from "vl/lib/engine_controls";
import { keep } from "vl/lib/kept";
import { Command, Copy, Problem, useLive } from "vl/lib/parts";
import { askOf, clean, first } from "vl/lib/plan_state";
import { asFile, fromFile } from "vl/lib/plan_file";
import { addressOf, writeAddress } from "vl/lib/state";
import { bytes, count } from "vl/lib/units";
import { t } from "vl/lib/words";
import { View } from "vl/views/plan";

// What was asked last, for who comes back from another tab.
let last = null;

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useState(() => clean(known, state) ?? last ?? first(known));
  const { answer, problem, isRunning, start } = useLive(run);
  const [note, setNote] = useState("");
  const isMounted = useRef(false);
  useEffect(() => {
    const found = isMounted.current && clean(known, state);
    if (found) setAsked(found);
    isMounted.current = true;
  }, [state]);
  useEffect(() => {
    last = asked;
    start(askOf(asked));
    const later = setTimeout(() => writeAddress("plan", asked), 250);
    return () => clearTimeout(later);
  }, [asked]);
  const change = (next) => {
    setNote("");
    setAsked(next);
  };
  const takeFile = async (files) => {
    const found = await fromFile(known, files, upload);
    if (found) change(found);
    return found !== null;
  };
  const settings = answer?.document.inputs.engine === asked.engine ? answer.document.inputs.settings : {};
  const newest = asked.version === "" && answer?.document.inputs.engine === asked.engine ? answer.document.inputs.engine_version : "";
  const own = { known, state: asked, onChange: change };
  const putAside = () => {
    const name = nameOf(answer.document);
    keep({ name, ask: answer.ask, answer });
    setNote(t("plan.kept", { name }));
  };
  const save = async () => setNote(await asFile(asked));
  return html`<div class="split"><form class="controls" aria-label=${t("tab.plan")} onSubmit=${(event) => event.preventDefault()}>
      <${ModelControls} ...${own} before=${takeFile} /><${DeviceControl} ...${own} /><${EngineControls} ...${own} newest=${newest} />
      <${ParallelControls} ...${own} /><${FormatControls} ...${own} /><${SizeControls} ...${own} settings=${settings} /><${FlagControls} ...${own} />
    </form>
    <div class="shown"><${Problem} message=${problem} />
      ${answer ? html`<div class=${problem ? "stale" : ""} aria-busy=${isRunning}><${View} document=${answer.document} beside=${html`<${Command} line=${answer.command} />
          <div class="tools"><${LoadLink} state=${asked} /><${CopyAddress} state=${asked} /><button type="button" class="plain" onClick=${save}>${t("plan.save")}</button>
            <button type="button" class="plain" onClick=${putAside}>${t("plan.keep")}</button><span role="status">${note}</span></div>`} /></div>
        <${Strip} plan=${answer.document} />` : !problem && html`<p>${t("working")}</p>`}</div></div>`;
}

/** The tab Capacity with this plan. */
function LoadLink({ state }) {
  const [address, setAddress] = useState("#capacity");
  useEffect(() => {
    addressOf("capacity", { plan: state }).then(setAddress);
  }, [state]);
  return html`<a href=${address}>${t("plan.load")}</a>`;
}

function CopyAddress({ state }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    addressOf("plan", state).then(setAddress);
  }, [state]);
  return html`<${Copy} text=${address} label=${t("plan.copyAddress")} />`;
}

/** What a phone shows at its foot while the sliders are on the screen and the chart is not. */
function Strip({ plan }) {
  const { holds } = plan.verdict;
  const rank = plan.ranks[0];
  const peak = rank.peaks.find((each) => each.phase === rank.binding_phase).occupied.expected;
  const [word, tone] = holds === null ? ["verdict.untold", "unsure"] : holds ? ["verdict.holds", "good"] : ["verdict.fails", "bad"];
  return html`<div class=${`strip ${tone}`} aria-hidden="true"><b>${t(word)}</b> ${plan.kv_pool && html`<span>${t("plan.tokens.short", { count: count(plan.kv_pool.tokens.expected) })}</span>`}<span>${bytes(peak)} / ${bytes(rank.device_total_bytes)}</span></div>`;
}

const nameOf = ({ inputs }) => `${inputs.model.split("/").pop()} · ${inputs.device} · ${inputs.engine} ${inputs.engine_version} · tp ${inputs.tp} pp ${inputs.pp} dp ${inputs.dp} ep ${inputs.ep}`;
