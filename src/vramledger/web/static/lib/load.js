// What the views of a simulated load share: the answer's head, figures, and what it holds under.
import { html } from "vl/lib/dom";
import { Evidence } from "vl/lib/parts";
import { bytes, count, number, seconds } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/load";

addWords(words);

/** "99.13%"; 1 is "100%". */
export const share = (value) => `${+(value * 100).toFixed(2)}%`;

/** Milliseconds in the unit that suits. */
export const ms = (value) => seconds(value / 1000);

/** The same for an axis: "100 ms", "1 s", "1,000 s". */
export const msOnAxis = (value) => (value < 1000 ? `${number(value)} ms` : `${number(value / 1000)} s`);

/** Times a second in three digits. */
export const perSecond = (value) => `${number(value)}/s`;

/** The answer in a sentence: `tone` is good, bad or unsure; `children` follow it. */
export function Headline({ word, tone, said, children }) {
  return html`<section class=${`verdict ${tone}`} aria-live="polite" aria-label=${word}><div class="word">${word}</div><p class="said">${said}</p>${children}</section>`;
}

/** What else there is to say of an answer before it is trusted. */
export const Notes = ({ notes }) => (notes.length ? html`<ul>${notes.map((each) => html`<li key=${each}>${each}</li>`)}</ul>` : null);

/** How the step's time is known, and everything else that the answer rests on. */
export function Conditions({ conditions: found, notes = [] }) {
  const { workload, aims, step } = found;
  const rows = [
    [t("load.instance"), [found.model, found.engine && `${found.engine} ${found.engine_version}`, found.device].filter(Boolean).join(" · ") || t("load.bare")],
    [t("load.pool"), `${t("load.pool.said", { tokens: count(found.pool_tokens), blocks: count(found.usable_blocks), block: count(found.block_tokens) })}${found.pool_bytes ? `, ${bytes(found.pool_bytes)}` : ""}; ${found.pool_from}`],
    ["scheduler", [found.scheduling, `max_num_seqs ${count(found.max_num_seqs)}`, `max_num_batched_tokens ${count(found.max_num_batched_tokens)}`, `max_model_len ${count(found.max_model_len)}`,
      `chunked prefill ${found.chunked_prefill ? "on" : "off"}`, `prefix cache ${found.prefix_caching ? "on" : "off"}`, found.watermark ? `watermark ${found.watermark}` : "", found.async_scheduling ? "async" : ""].filter(Boolean).join(", ")],
    [t("load.fleet"), `${t(found.replicas === 1 ? "load.replica.one" : "load.replicas", { n: count(found.replicas) })}, ${found.router}${found.prefill_replicas ? `, ${t("load.prefill", { n: count(found.prefill_replicas) })}` : ""}; tool wait ${found.tool_wait}`],
    [t("load.workload"), `${workload.name}: ${t("load.requests", { n: count(workload.requests) })}, seed ${workload.seed}${workload.arrival_scale === 1 ? "" : `, ${t("load.scaled", { x: number(workload.arrival_scale) })}`}`],
    [t("load.aims"), aimsOf(aims).map(([name, value]) => `${name} ${ms(value)}`).join(", ") + (aimsOf(aims).length ? `; ${t("load.asked", { share: share(aims.goodput) })}` : t("load.noaim"))],
  ];
  return html`<section aria-label=${t("load.conditions")}><h2>${t("load.conditions")}</h2>
    <p>${t("load.step")} <${Evidence} evidence=${step.evidence} /> ${step.relative_error !== null && t("load.off", { share: share(step.relative_error) })}</p>
    <dl class="conditions">${rows.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${[...workload.notes, ...notes].length > 0 && html`<ul class="dim">${[...workload.notes, ...notes].map((each) => html`<li>${each}</li>`)}</ul>`}</section>`;
}

/** Aims that were set: [["TTFT", milliseconds], ...]. */
export const aimsOf = (aims) => [["TTFT", aims.ttft_ms], ["TPOT", aims.tpot_ms], ["latency", aims.latency_ms]].filter(([, value]) => value !== null);

/** At most so many of them, the first and the last included. */
export function thinned(items, most) {
  if (items.length <= most) return items;
  return Array.from({ length: most }, (_, place) => items[Math.round((place * (items.length - 1)) / (most - 1))]);
}
