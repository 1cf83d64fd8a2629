// The tab Live: a running engine and its gateway, looked at again and again.
import { html, useEffect, useRef, useState } from "vl/lib/dom";
import { AskError, run, running, upload } from "vl/lib/api";
import { useKept } from "vl/lib/kept";
import { look, stopLooking, useLooks } from "vl/lib/looks";
import { Command, Drop, Problem, Select, Text } from "vl/lib/parts";
import { writeAddress } from "vl/lib/state";
import { addWords, t } from "vl/lib/words";
import { Ledger } from "vl/views/live_memory";
import { Decisions, Instances } from "vl/views/live_requests";
import { Figures, Pool, Requests, clock } from "vl/views/live_history";
import { View as Reconciliation } from "vl/views/reconcile";
import words from "vl/words/live";

addWords(words);
const EVERY = [["0.5", "0.5 s"], ["1", "1 s"], ["2", "2 s"], ["5", "5 s"], ["10", "10 s"]];
/** What the controls said when another tab was opened. */
let last = {};
const WINDOWS = [["2", "2 min"], ["5", "5 min"], ["15", "15 min"], ["60", "60 min"]];

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ state }) {
  const [allowed, setAllowed] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    running().then(setAllowed, (found) => setProblem(found.message));
  }, []);
  if (problem) return html`<${Problem} message=${problem} />`;
  return allowed ? html`<${Live} allowed=${allowed} state=${state} />` : html`<p>${t("loading")}</p>`;
}

function Live({ allowed, state }) {
  const [asked, setAsked] = useState({ engine: allowed.engines[0] ?? "", gateway: allowed.gateways[0] ?? "", every: "1", minutes: "5", ...last, ...texts(state) });
  const [frozen, setFrozen] = useState(null);
  const looks = useLooks();
  const measured = useMeasured();
  const set = (more) => setAsked((before) => ({ ...before, ...more }));
  const begin = () => {
    setFrozen(null);
    look({ engine: asked.engine.trim(), gateway: asked.gateway.trim(), interval_s: Number(asked.every) || 1 });
    if (asked.engine.trim()) measured.start(asked.engine.trim());
    else measured.clear();
  };
  useEffect(() => {
    // An address that somebody sent does not make this machine ask around: only what the command was given is looked at at once.
    if (looks.standing !== "none") {
      if (looks.asked.engine) measured.start(looks.asked.engine);
      return;
    }
    const isGiven = [[asked.engine, allowed.engines], [asked.gateway, allowed.gateways]].every(([url, given]) => !url || given.includes(url));
    if (isGiven && (asked.engine || asked.gateway)) begin();
  }, []);
  useEffect(() => {
    last = asked;
    const later = setTimeout(() => writeAddress("live", asked), 300);
    return () => clearTimeout(later);
  }, [asked]);
  const shown = frozen ?? looks;
  const isOn = looks.standing === "waiting" || looks.standing === "looking";
  return html`<div class="split"><form class="controls" aria-label=${t("tab.live")} onSubmit=${(event) => { event.preventDefault(); begin(); }}>
      <${Text} label=${t("live.engine")} value=${asked.engine} list=${allowed.engines} placeholder="http://127.0.0.1:8000" onChange=${(engine) => set({ engine })} />
      <${Text} label=${t("live.gateway")} value=${asked.gateway} list=${allowed.gateways} placeholder="http://127.0.0.1:8099" onChange=${(gateway) => set({ gateway })} hint=${t(allowed.own_machine ? "live.own" : "live.only")} />
      <div class="pair"><${Select} label=${t("live.every")} value=${asked.every} options=${EVERY} onChange=${(every) => set({ every })} />
      <${Select} label=${t("live.window")} value=${asked.minutes} options=${WINDOWS} onChange=${(minutes) => set({ minutes })} /></div>
      <div class="buttons"><button type="submit" disabled=${!asked.engine.trim() && !asked.gateway.trim()}>${t("live.start")}</button>
        <button type="button" class="plain" disabled=${!isOn} onClick=${stopLooking}>${t("live.stop")}</button>
        <button type="button" class="plain" disabled=${!looks.look} aria-pressed=${frozen !== null} onClick=${() => setFrozen(frozen ? null : looks)}>${t(frozen ? "live.go" : "live.pause")}</button></div>
      <p class="hint">${t("live.keys")}</p>
      <${Compared} measured=${measured} />
    </form>
    <div class="shown"><${Problem} message=${looks.problem && looks.problem !== "lost" && looks.look ? t("live.ended", { message: looks.problem }) : looks.problem} />
      ${looks.standing === "none" ? html`<section><h2>${t("live.none")}</h2><p>${t("live.what")}</p><${Command} line="vramledger ui --engine http://127.0.0.1:8000 --log vllm.log --nvml --gateway http://127.0.0.1:8099" label=${t("live.given")} /></section>` : html`<${Shown} looks=${shown} isFrozen=${frozen !== null} isOn=${isOn} minutes=${Number(asked.minutes) || 5} measured=${measured} allowed=${allowed} />`}</div></div>`;
}

function Shown({ looks, isFrozen, isOn, minutes, measured, allowed }) {
  const { look, points, requests } = looks;
  if (!look) return isOn ? html`<p role="status">${t("live.looking")}</p>` : null;
  const windowMs = minutes * 60_000;
  const last = points[points.length - 1];
  const drawn = points.filter((point) => point.at >= last.at - windowMs);
  // Where nothing answers, what was told last stays, and says that it is old.
  const until = drawn.findLastIndex((point) => point.total !== null || point.running !== null) + 1;
  const told = until ? drawn.slice(0, until) : drawn;
  const isOld = told.length < drawn.length;
  const hasPool = last.total !== null || drawn.some((point) => point.used !== null);
  return html`<${Standing} looks=${looks} isFrozen=${isFrozen} isOn=${isOn} />
    ${isOld && html`<p class="dim">${t("live.old", { time: clock(told[told.length - 1].at) })}</p>`}
    <div class=${isOld ? "old" : ""}><${Figures} points=${told} look=${look} /></div>
    <div class="pictures">${hasPool && html`<${Pool} points=${drawn} windowMs=${windowMs} />`}<${Requests} points=${drawn} windowMs=${windowMs} /></div>
    ${look.gateway && html`<${Instances} gateway=${look.gateway} />`}
    <h2>${t("live.decisions")}</h2>
    ${look.gateway || requests.size ? html`<${Decisions} requests=${requests} />` : html`<p class="dim">${t("live.decisions.gateway")}</p>`}
    <${Command} line=${looks.command} />
    <h2>${t("live.ledger")}</h2>
    <${Problem} message=${measured.problem} />
    ${measured.isRunning && html`<p role="status">${t("live.measuring")}</p>`}
    ${measured.answer && html`<${Ledger} measurement=${measured.answer.document} /><p><button type="button" class="plain" disabled=${measured.isRunning} onClick=${measured.again}>${t("live.measure")}</button></p><${Command} line=${measured.answer.command} label=${t("live.measure.command")} />`}
    <h2>${t("live.drift")}</h2>
    <${Problem} message=${measured.drift.problem} />
    ${measured.drift.isRunning && html`<p role="status">${t("live.comparing")}</p>`}
    ${measured.drift.answer ? html`<${Reconciliation} document=${measured.drift.answer.document} /><${Command} line=${measured.drift.answer.command} label=${t("live.drift.command")} />` : !measured.drift.isRunning && html`<p class="dim">${t("live.drift.none")}</p>`}
    <${Blind} look=${look} last=${last} measured=${measured} allowed=${allowed} />`;
}

/** Who answers, since when who does not. */
function Standing({ looks, isFrozen, isOn }) {
  const { look, away } = looks;
  const engine = look.engine && [look.engine.engine, look.engine.version].filter(Boolean).join(" ");
  const model = look.engine?.model?.split("/").pop();
  const lines = Object.entries(look.problems).map(([place, said]) => html`<li><span class="chip bad">${t("live.away")}</span> <span class="dim">${t("live.since", { time: clock(away[place]) })}</span> ${said}</li>`);
  const answering = [look.engine && html`<li><span class="chip good">${t("live.answers")}</span> <b>${engine}</b>${model && `, ${model}`} <span class="dim">${look.engine.url}</span></li>`,
    look.gateway && html`<li><span class=${`chip ${look.gateway.draining ? "unsure" : "good"}`}>${look.gateway.draining ? "draining" : t("live.answers")}</span> <b>gateway</b> <span class="dim">${look.gateway.url}</span></li>`];
  const how = !isOn ? t("live.stopped") : isFrozen ? t("live.paused") : "";
  return html`<section class="live-state" aria-label=${t("live.state")}><ul aria-live="polite">${answering}${lines}</ul>
    <p class="dim">${t("live.last", { time: clock(look.at_s * 1000) })}${how && ` · ${how}`}</p></section>`;
}

/** What the looks cannot tell, and what would. */
function Blind({ look, last, measured, allowed }) {
  const said = [
    !look.gateway && t("live.blind.gateway"), look.gateway && !look.engine && t("live.blind.engine"), last.preempted === null && t("live.blind.preempt"),
    look.engine && last.cached === null && t("live.blind.cached"), look.engine && !allowed.has_log && t("live.blind.log"), !allowed.has_nvml && t("live.blind.device"),
    ...(look.engine?.notes ?? []), ...(measured.answer?.document.notes ?? []),
  ].filter(Boolean);
  return said.length > 0 && html`<details><summary>${t("live.blind")} (${said.length})</summary><ul>${said.map((each) => html`<li>${each}</li>`)}</ul></details>`;
}

/** A plan to set the measurement against: kept in tab Plan, or a file. */
function Compared({ measured }) {
  const kept = useKept().filter((each) => each.answer?.document?.kind === "plan");
  const [name, setName] = useState("");
  const [file, setFile] = useState(null);
  const choose = async (wanted) => {
    setName(wanted);
    setFile(null);
    const item = kept.find((each) => each.name === wanted);
    measured.against(item ? async () => (await upload([new File([JSON.stringify(item.answer.document)], "plan.json")])).source : null);
  };
  const take = (found) => {
    setFile(found);
    setName("");
    measured.against(found ? async () => found.source : null);
  };
  return html`<fieldset><legend>${t("live.drift")}</legend>
    ${kept.length > 0 && html`<${Select} label=${t("live.plan")} value=${name} options=${[["", t("live.plan.none")], ...kept.map((each) => [each.name, t("live.plan.kept", { name: each.name })])]} onChange=${choose} />`}
    <${Drop} label=${t("live.plan.file")} held=${file} onFiles=${take} accept=".json" hint=${t("live.plan.hint")} /></fieldset>`;
}

const IDLE = { answer: null, problem: "", isRunning: false };

/** One measurement of the engine, and how it stands to a plan. */
function useMeasured() {
  const [state, setState] = useState(IDLE);
  const [drift, setDrift] = useState(IDLE);
  const plan = useRef(null);
  const now = useRef({ url: "", source: null, turn: 0, compared: 0 });
  const compare = async () => {
    const turn = ++now.current.compared;
    const change = (next) => turn === now.current.compared && setDrift(next);
    if (!plan.current || !now.current.source) return setDrift(IDLE);
    setDrift({ ...IDLE, isRunning: true });
    try {
      const sources = [await plan.current(), now.current.source];
      const answer = await run({ command: "reconcile", sources, options: { exit_zero: true } });
      const failed = answer.document === null || answer.document.kind === "error";
      return change(failed ? { ...IDLE, problem: answer.message } : { ...IDLE, answer });
    } catch (problem) {
      return change({ ...IDLE, problem: problem.message });
    }
  };
  const start = async (url) => {
    const turn = ++now.current.turn;
    now.current.url = url;
    setState((before) => ({ ...before, problem: "", isRunning: true }));
    try {
      const answer = await running(url);
      if (turn !== now.current.turn) return;
      if (answer.document === null || answer.document.kind === "error") throw new AskError(answer.message);
      now.current.source = answer.source;
      setState({ ...IDLE, answer });
      compare();
    } catch (problem) {
      if (turn === now.current.turn) setState({ ...IDLE, problem: problem.message });
    }
  };
  const against = (source) => {
    plan.current = source;
    compare();
  };
  const clear = () => {
    now.current.turn += 1;
    now.current.source = null;
    setState(IDLE);
    setDrift(IDLE);
  };
  return { ...state, drift, start, against, clear, again: () => start(now.current.url) };
}

/** Of a shared address only what can be shown. */
const texts = (state) => Object.fromEntries(Object.entries(state ?? {}).filter(([name, value]) => ["engine", "gateway", "every", "minutes"].includes(name) && typeof value === "string"));
