// The tab Plan: a question put with sliders, answered as they move.
import { html, useEffect, useLayoutEffect, useMemo, useState } from "vl/lib/dom";
import { run, upload } from "vl/lib/api";
import { useAsked } from "vl/lib/asked";
import { DeviceControl, EngineControls, FlagControls, FormatControls, given, ModelControls, ParallelControls, SizeControls } from "vl/lib/engine_controls";
import { keep } from "vl/lib/kept";
import { Command, Copy, Problem, useLive } from "vl/lib/parts";
import { askOf, clean, first, optionOf } from "vl/lib/plan_state";
import { asFile, fromFile } from "vl/lib/plan_file";
import { addressOf } from "vl/lib/state";
import { bytes, count } from "vl/lib/units";
import { currentLanguage, t } from "vl/lib/words";
import { View } from "vl/views/plan";

const put = (asked) => run(askOf(asked));

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useAsked("plan", state, { read: (found) => clean(known, found), first: () => first(known) });
  const { answer, problem, start } = useLive(put);
  // Asked before the page is painted: a frame is a good part of the time in which a change is to be seen.
  useLayoutEffect(() => {
    start(asked);
  }, [asked]);
  const takeFile = async (files) => {
    const found = await fromFile(known, files, upload);
    if (found) setAsked(found);
    return found !== null;
  };
  const isSame = answer?.document.inputs.engine === asked.engine;
  const own = { known, state: asked, onChange: setAsked };
  // A moved slider draws the controls anew; what is shown only an answer.
  const shown = useMemo(() => answer && html`<${Shown} answer=${answer} />`, [answer, currentLanguage()]);
  return html`<div class="split"><form class="controls" aria-label=${t("tab.plan")} onSubmit=${(event) => event.preventDefault()}>
      <${ModelControls} ...${own} before=${takeFile} /><${DeviceControl} ...${own} /><${EngineControls} ...${own} newest=${isSame && asked.version === "" ? answer.document.inputs.engine_version : ""} />
      <${ParallelControls} ...${own} /><${FormatControls} ...${own} /><${SizeControls} ...${own} settings=${isSame ? answer.document.inputs.settings : {}} /><${FlagControls} ...${own} />
    </form>
    <div class="shown"><${Problem} message=${problem} /><${Left} known=${known} state=${asked} problem=${problem} onChange=${setAsked} /><div class=${problem ? "stale" : ""}>${shown}</div>${!answer && !problem && html`<p>${t("working")}</p>`}</div></div>`;
}

/** A plan, the line that gives it, and what can be done with it. */
function Shown({ answer }) {
  const [note, setNote] = useState("");
  useEffect(() => setNote(""), [answer]);
  const putAside = () => {
    const name = nameOf(answer.document);
    keep({ name, ask: askOf(answer.asked), answer });
    setNote(t("plan.kept", { name }));
  };
  const save = async () => setNote(await asFile(answer.asked));
  return html`<${View} document=${answer.document} beside=${html`<${Command} line=${answer.command} />
      <div class="tools"><${LoadLink} state=${answer.asked} /><${CopyAddress} state=${answer.asked} /><button type="button" class="plain" onClick=${save}>${t("plan.save")}</button>
        <button type="button" class="plain" onClick=${putAside}>${t("plan.keep")}</button><span role="status">${note}</span></div>`} />
    <${Strip} plan=${answer.document} />`;
}

/** Where a given flag is what is wrong: one press that leaves it to the engine. */
function Left({ known, state, problem, onChange }) {
  const words = new Set(problem.match(/--[\w-]+/g));
  const named = Object.keys(state.flags).filter((name) => words.has(optionOf(known, state.engine, name)?.flag));
  return html`${named.map((name) => html`<p><button type="button" key=${name} onClick=${() => onChange(given(state, name, null))}>${t("plan.leave", { flag: optionOf(known, state.engine, name).flag })}</button></p>`)}`;
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
