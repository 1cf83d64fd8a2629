// A diagnosis: each failure's class, its numbers, the lines that it rests on, and what would help. Shows what it is given and asks nothing.
import { html, useMemo, useState } from "vl/lib/dom";
import { Bars } from "vl/lib/sizebars";
import { LogExcerpts, LogWindow } from "vl/lib/logview";
import { Facts, Table } from "vl/lib/parts";
import { bytes, count, number, signed } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import { View as Snapshot } from "vl/views/snapshot";
import words from "vl/words/diagnose";

addWords(words);

const TONES = { high: "bad", medium: "unsure", low: "unsure" };

/**
 * document: what `vramledger diagnose --json` writes. beside: {excerpts, snapshots} of a file of its own; `texts`: the logs by name where the
 * page has them.
 */
export function View({ document: found, beside, texts }) {
  const lost = found.failures.filter((each) => each.is_failure);
  return html`<div class="diagnosis">
    ${found.failures.length === 0 && html`<section class="verdict good" aria-live="polite"><div class="word">${t("diagnose.none")}</div>
      <p class="said">${t("diagnose.none.told")}</p></section>`}
    ${found.failures.length > 0 && lost.length === 0 && html`<p class="dim">${t("diagnose.survived")}</p>`}
    ${found.failures.length > 1 && html`<nav class="jumps" aria-label=${t("diagnose.failures")}><ol>${found.failures.map((each, place) => html`<li><a href=${`#failure-${place + 1}`} onClick=${jump}>${title(each)}</a></li>`)}</ol></nav>`}
    ${found.failures.map((each, place) => html`<${Failure} key=${place} failure=${each} place=${place + 1} of=${found.failures.length} excerpts=${beside?.excerpts} texts=${texts} />`)}
    ${(beside?.snapshots ?? []).map((each) => html`<${Snapshot} document=${each} />`)}
    <${Sources} found=${found} />
  </div>`;
}

function jump(event) {
  event.preventDefault();
  const place = document.querySelector(event.currentTarget.getAttribute("href"));
  place.scrollIntoView();
  place.focus();
}

function Failure({ failure, place, of, excerpts, texts }) {
  const sums = failure.arithmetic;
  return html`<article id=${`failure-${place}`} tabindex="-1" aria-label=${title(failure)}>
    <section class=${`verdict ${failure.is_failure ? TONES[failure.confidence] : "unsure"}`} aria-live=${place === 1 ? "polite" : undefined}>
      ${of > 1 && html`<div class="dim">${t("diagnose.place", { place, of })}</div>`}
      <div class="word">${title(failure)}</div>
      <p class="said">${failure.meaning || t("diagnose.words")}</p>
      <p>${failure.failure_class && t(`class.${failure.failure_class}`)}</p>
    </section>
    <${Figures} failure=${failure} />
    ${sums.holders.length > 0 && html`<h2>${t("diagnose.holders")}</h2><${Holders} sums=${sums} />`}
    ${sums.lines.length > 0 && html`<ul>${sums.lines.map((each) => html`<li>${each}</li>`)}</ul>`}
    <h2>${t("diagnose.evidence")}</h2><${Evidence} failure=${failure} excerpts=${excerpts} texts=${texts} />
    <h2>${t("diagnose.because")}</h2><${Because} failure=${failure} />
    ${failure.remedies.length > 0 && html`<h2>${t("remedies")}</h2><${Remedies} failure=${failure} />`}
    ${failure.prevention && html`<p><b>${t("diagnose.prevented")}</b> ${failure.prevention}</p>`}
    ${failure.confidence !== "high" && failure.surer.length > 0 && html`<p><b>${t("diagnose.surer")}</b> ${failure.surer[0]}</p>`}
    ${failure.ledger.length > 0 && html`<h2>${t("diagnose.ledger")}</h2>${failure.ledger.every((each) => !each.entry) ? html`<p>${failure.ledger.map((each) => each.owner).join(", ")}</p>` : html`<${Table} label=${t("diagnose.ledger")} columns=${[t("diagnose.owner"), t("diagnose.entry"), { name: t("diagnose.size"), number: true }]}
      rows=${failure.ledger.map((each) => [each.owner, each.entry, each.bytes === null ? "" : bytes(each.bytes)])} />`}`}
  </article>`;
}

/** "warm-up · high confidence", as the terminal says it. */
function title(failure) {
  const name = failure.failure_class === null ? t("class.untold") : failure.failure_class === "none" ? t("class.other") : failure.failure_class;
  const parts = [name];
  if (failure.failure_class !== null) parts.push(t(`confidence.${failure.confidence}`));
  if (!failure.is_failure) parts.push(t("diagnose.nocrash"));
  if (failure.repeats) parts.push(t("diagnose.times", { times: failure.repeats + 1 }));
  return parts.join(" · ");
}

function Figures({ failure }) {
  const { arithmetic: sums, moment } = failure;
  const cause = failure.evidence.find((each) => isCause(each.what)) ?? failure.evidence[0];
  const facts = [
    [t("diagnose.wanted"), sums.wanted_bytes ? size(sums.wanted_bytes) : sums.wanted_tokens !== null ? t("diagnose.tokens", { count: count(sums.wanted_tokens) }) : null],
    [t("diagnose.available"), sums.available_bytes ? size(sums.available_bytes) : sums.available_tokens !== null ? t("diagnose.tokens", { count: count(sums.available_tokens) }) : null],
    [t("diagnose.missing"), sums.missing_bytes && size(sums.missing_bytes), "", "bad"],
    [failure.domain === "host" ? t("diagnose.limit") : t("diagnose.device"), sums.total_bytes && size(sums.total_bytes)],
    [t("diagnose.domain"), failure.domain && t(`domain.${failure.domain}`)],
    [t("diagnose.stage"), moment.stage],
    [t("diagnose.runnerup"), failure.runner_up],
    [t("engine"), failure.engine],
    [t("diagnose.cause"), cause && cause.line > 0 ? t("diagnose.atline", { line: count(cause.line) }) : cause.what, [cause.file.split("/").pop(), when(failure.at_s)].filter(Boolean).join(", ")],
    [t("diagnose.ready"), moment.since_ready_s !== null ? t("diagnose.after", { seconds: count(Math.round(moment.since_ready_s)) }) : moment.ready === false ? t("diagnose.before") : null],
    [t("diagnose.running"), moment.running_requests === null ? null : moment.waiting_requests === null ? count(moment.running_requests) : `${count(moment.running_requests)} / ${count(moment.waiting_requests)}`],
    [t("diagnose.scheduled"), moment.scheduled_tokens === null ? null : count(moment.scheduled_tokens)],
    [t("diagnose.kv"), moment.kv_usage_ratio === null ? null : `${(100 * moment.kv_usage_ratio).toFixed(1)} %`],
    [t("diagnose.blocks"), moment.kv_free_blocks === null ? null : count(moment.kv_free_blocks)],
    [t("diagnose.preempted"), moment.preemptions === null || moment.preemptions === 0 ? null : count(moment.preemptions)],
    [t("diagnose.slope"), moment.device_slope_bytes_per_h === null ? null : `${bytes(moment.device_slope_bytes_per_h)}/h`],
    [t("diagnose.hostslope"), moment.host_slope_bytes_per_h === null ? null : `${bytes(moment.host_slope_bytes_per_h)}/h`],
    [t("diagnose.previous"), moment.previous_engine_s === null ? null : t("diagnose.ago", { seconds: count(Math.round(moment.previous_engine_s)) })],
  ];
  return html`<${Facts} items=${facts.filter(([, value]) => value !== null && value !== undefined && value !== "")} />`;
}

function Holders({ sums }) {
  const rows = sums.holders.map((each) => ({ name: each.who, value: Math.max(0, each.bytes.expected), low: Math.max(0, each.bytes.low), high: Math.max(0, each.bytes.high), tone: each.who.startsWith("free") ? "s4" : each.who.startsWith("of these") ? "adapters" : "s1" }));
  if (sums.wanted_bytes) rows.push({ name: t("diagnose.wanted"), value: sums.wanted_bytes.expected, low: sums.wanted_bytes.low, high: sums.wanted_bytes.high, tone: "bad" });
  return html`<${Bars} rows=${rows} says=${rows.map((row) => `${row.name} ${bytes(row.value)}`).join("; ")} columns=${[t("diagnose.holder"), { name: "B", number: true }]} />`;
}

function Evidence({ failure, excerpts, texts }) {
  const files = [...new Set(failure.evidence.map((each) => each.file))];
  const causes = failure.evidence.filter((each) => isCause(each.what));
  const [chosen, choose] = useState((causes[0] ?? failure.evidence[0])?.file);
  const file = files.includes(chosen) ? chosen : files[0];
  const marks = useMemo(() => new Map(failure.evidence.filter((each) => each.file === file && each.line > 0).map((each) => [each.line, { ...each, isCause: isCause(each.what) }])), [failure, file]);
  const text = texts?.get(file);
  const pieces = (excerpts ?? []).filter((each) => each.file === file && each.lines.some((_, place) => marks.has(each.first_line + place)));
  return html`<div>
    ${files.length > 1 && html`<p>${files.map((each) => html`<button type="button" class="plain" aria-pressed=${each === file} onClick=${() => choose(each)}>${each}</button> `)}</p>`}
    ${text ? html`<${LogWindow} text=${text} marks=${marks} name=${file} />` : pieces.length > 0 ? html`<${LogExcerpts} excerpts=${pieces} marks=${marks} name=${file} />` : null}
    <details open=${!text && pieces.length === 0}><summary>${t("diagnose.lines", { count: failure.evidence.length })}</summary>
      <${Table} label=${t("diagnose.evidence")} columns=${[t("diagnose.where"), t("diagnose.what"), t("diagnose.text")]}
        rows=${failure.evidence.map((each) => [each.line > 0 ? `${each.file}:${each.line}` : each.file, each.what, html`<code>${each.text.slice(0, 2000)}</code>`])} /></details>
  </div>`;
}

function Because({ failure }) {
  const totals = new Map();
  for (const rule of failure.rules) for (const [name, weight] of Object.entries(rule.says)) totals.set(name, (totals.get(name) ?? 0) + weight);
  const names = [...totals.keys()].sort((one, other) => totals.get(other) - totals.get(one));
  const told = (weight) => (weight === undefined ? "" : signed(weight, number));
  if (failure.rules.length === 0) return html`<p>${t("diagnose.norule")}</p><${Silent} failure=${failure} />`;
  return html`<${Table} label=${t("diagnose.because")} columns=${[t("diagnose.rule"), ...names.map((name) => ({ name, number: true }))]}
      rows=${[...failure.rules.map((rule) => [rule.why, ...names.map((name) => told(rule.says[name]))]), [html`<b>${t("diagnose.sum")}</b>`, ...names.map((name) => html`<b>${told(totals.get(name))}</b>`)]]} />
    <${Silent} failure=${failure} />`;
}

function Silent({ failure }) {
  return html`<details><summary>${t("diagnose.silent", { count: failure.rules_without_evidence.length })}</summary><${Table} label=${t("diagnose.silent", { count: failure.rules_without_evidence.length })}
    columns=${[t("diagnose.rule"), t("diagnose.lacking")]} rows=${failure.rules_without_evidence.map((rule) => [rule.why, rule.lacking.join(", ").replace(/_/g, " ")])} /></details>`;
}

function Remedies({ failure }) {
  const sized = failure.remedies.filter((each) => each.frees_bytes !== null && each.frees_bytes > 0);
  const missing = failure.arithmetic.missing_bytes;
  const rows = sized.map((each) => ({ name: each.change, value: each.frees_bytes, tone: missing && each.frees_bytes < missing.high ? "unsure" : "good" }));
  const enough = missing ? sized.filter((each) => each.frees_bytes >= missing.high).length : null;
  return html`${rows.length > 0 && html`<${Bars} rows=${rows} line=${missing && missing.expected > 0 ? { name: t("diagnose.missing"), value: missing.expected } : null}
      caption=${enough === null ? t("diagnose.frees") : t("diagnose.enough", { count: enough, of: sized.length })} says=${rows.map((row) => `${row.name}: ${bytes(row.value)}`).join("; ")} columns=${[t("diagnose.change"), { name: "B", number: true }]} />`}
    <${Table} label=${t("remedies")} columns=${[t("diagnose.change"), t("diagnose.effect"), { name: t("diagnose.freed"), number: true }, { name: t("diagnose.kvtokens"), number: true }, t("diagnose.basis")]}
      rows=${failure.remedies.map((each) => [each.change, html`${each.effect}${each.needs && html`<div class="dim">${t("diagnose.needs", { needs: each.needs })}</div>`}`,
        each.frees_bytes === null ? "–" : bytes(each.frees_bytes), each.tokens === null ? "–" : signed(each.tokens, count), t(`basis.${each.basis}`)])} />`;
}

function Sources({ found }) {
  return html`<details><summary>${t("diagnose.sources", { count: found.sources.length })}</summary><ul>${found.sources.map((each) => html`<li><code>${each.name}</code> (${each.kind})</li>`)}</ul>
    ${found.notes.length > 0 && html`<ul>${found.notes.map((each) => html`<li>${each}</li>`)}</ul>`}</details>`;
}

const isCause = (what) => /^(first cause|description|last line)/.test(what);
/** Printed digits are as wide as their rounding: the middle says it. */
const size = (interval) => html`${interval.expected || !interval.high ? bytes(interval.expected) : `< ${bytes(interval.high)}`}`;
const when = (at) => (at === null ? "" : new Date(at * 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC"));
