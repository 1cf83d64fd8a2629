// What a log says: engine, settings, what was said once, what was said again and again.
import { html, useMemo } from "vl/lib/dom";
import { LogWindow } from "vl/lib/logview";
import { Table } from "vl/lib/parts";
import { bytes, count, number } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/diagnose";

addWords(words);

const MOST_ROWS = 400;

/** document: what `vramledger log --json` writes; `texts`: the logs by name where the page has them. */
export function View({ document: log, texts }) {
  const source = log.sources[0];
  const marks = useMemo(() => new Map(log.observations.filter((each) => each.source === source?.name).map((each) => [each.line, { what: each.event, text: each.text, isCause: each.event === "failure" }])), [log]);
  const text = source && texts?.get(source.name);
  const failures = Object.entries(log.failures);
  return html`<div class="logdocument">
    <dl class="facts close"><div><dt>${t("engine")}</dt><dd class="value">${log.engines.join(", ") || t("logview.noengine")}</dd></div>
      ${log.sources.map((each) => html`<div><dt>${each.name}</dt><dd class="value">${t("logview.lines", { count: count(each.lines) })}</dd><dd class="small">${bytes(each.size_bytes)}${each.from_s !== null ? `, ${clock(each.from_s)} – ${clock(each.until_s)}` : ""}</dd></div>`)}
      <div class=${failures.length > 0 ? "bad" : "good"}><dt>${t("logview.failures")}</dt><dd class="value">${count(failures.reduce((sum, [, times]) => sum + times, 0))}</dd><dd class="small">${failures.map(([name, times]) => `${name} ${times}×`).join(", ")}</dd></div></dl>
    ${text && html`<h2>${t("logview.text")}</h2><${LogWindow} text=${text} marks=${marks} name=${source.name} />`}
    <h2>${t("logview.timeline")}</h2>
    <${Table} label=${t("logview.timeline")} columns=${[t("diagnose.where"), t("logview.phase"), t("logview.event"), t("logview.values")]}
      rows=${log.observations.slice(0, MOST_ROWS).map((each) => [`${each.source.split("/").pop()}:${each.line}`, each.phase, each.event, valued(each.values)])} />
    ${log.observations.length > MOST_ROWS && html`<p class="dim">${t("logview.more", { count: count(log.observations.length - MOST_ROWS) })}</p>`}
    ${log.repeated.map((each) => html`<h2>${t("logview.repeated", { event: each.event, count: count(each.count) })}</h2><${Table} label=${each.event}
      columns=${[t("logview.series"), ...["first", "lowest", "highest", "last"].map((name) => ({ name: t(`logview.${name}`), number: true }))]}
      rows=${each.series.map((one) => [one.name, ...[one.first, one.lowest, one.highest, one.last].map((value) => shown(one.name, value))])} />`)}
    ${Object.keys(log.settings).length > 0 && html`<details><summary>${t("logview.settings", { count: Object.keys(log.settings).length })}</summary><${Table} label=${t("logview.settings", { count: "" })} columns=${[t("reconcile.setting"), t("logview.values")]}
      rows=${Object.entries(log.settings).map(([name, value]) => [name, String(value).slice(0, 400)])} /></details>`}
    ${log.notes.length > 0 && html`<ul>${log.notes.map((each) => html`<li>${each}</li>`)}</ul>`}
  </div>`;
}

const shown = (name, value) => (name.endsWith("_bytes") ? bytes(value) : typeof value === "number" ? number(value) : String(value));
const plain = (value) => (value !== null && typeof value === "object" ? value.expected : value);
const valued = (values) => Object.entries(values).map(([name, value]) => `${name.replace(/_bytes$/, "").replace(/_/g, " ")} ${shown(name, plain(value))}`).join(", ").slice(0, 400);
const clock = (at) => new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");
