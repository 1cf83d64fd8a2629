// What changed from one release to another. Shows what it is given and asks nothing.
import { html } from "vl/lib/dom";
import { Table } from "vl/lib/parts";
import { bytes, count, number, seconds, signed } from "vl/lib/units";
import { Waterfall } from "vl/lib/waterfall";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/compare";

addWords(words);

const SHOWN = { bytes, tokens: count, blocks: count, requests: number, count: number, ratio: number, s: seconds, "requests/s": number };

const TONES = { tripped: "bad", held: "good", untold: "unsure" };

/** document: what `vramledger diff --json` writes. */
export function View({ document: found }) {
  const groups = [...new Set(found.changes.map((each) => each.group))];
  const owners = found.changes.filter((each) => each.name.startsWith("owner.") && each.delta !== null);
  const steps = owners.map((each) => ({ name: each.name.slice("owner.".length), bytes: each.delta })).sort((one, other) => Math.abs(other.bytes) - Math.abs(one.bytes));
  return html`${found.thresholds.map((each) => html`<section class=${`verdict ${TONES[each.outcome]}`} aria-label=${each.expression}><div class="word">${t(`diff.${each.outcome}`)}: <code>${each.expression}</code></div><p>${each.why}</p></section>`)}
    <p>${found.changes.length ? t("diff.summary", { count: found.changes.length, same: found.same.length }) : t("diff.none")} <span class="dim">A ${found.before.file}, B ${found.after.file}</span></p>
    ${[found.before, found.after].flatMap((side) => side.notes).map((note) => html`<p class="dim">${note}</p>`)}
    ${steps.length > 0 && html`<h2>${t("diff.owners")}</h2><${Waterfall} apart=${true} steps=${steps} says=${(told) => t("diff.says", { a: found.before.file, b: found.after.file, steps: told })} />`}
    ${groups.map((group) => html`<h2>${group}</h2><${Table} label=${group} columns=${[t("diff.name"), ...["before", "after", "delta", "percent"].map((name) => ({ name: t(`diff.${name}`), number: true }))]}
        rows=${found.changes.filter((each) => each.group === group).map(row)} />`)}
    ${[["diff.gone", found.conditions_gone], ["diff.new", found.conditions_new]].filter(([, texts]) => texts.length).map(([name, texts]) => html`<h2>${t(name)}</h2><ul>${texts.map((each) => html`<li>${each}</li>`)}</ul>`)}
    ${[["diff.same", found.same], ["diff.unknown", found.untold]].filter(([, names]) => names.length).map(([name, names]) => html`<details><summary>${t(name, { count: names.length })}</summary><p>${names.join(", ")}</p></details>`)}`;
}

function row({ name, unit, before, after, delta, percent, about }) {
  const shown = SHOWN[unit] ?? number;
  const told = (value) => (value === null ? "—" : typeof value === "number" ? shown(value) : html`<span class="text">${value}</span>`);
  const share = percent === null ? "" : signed(percent, (value) => `${value.toFixed(2)} %`);
  return [html`${name}<br /><span class="dim">${about}</span>`, told(before), told(after), delta === null ? "" : signed(delta, shown), share];
}
