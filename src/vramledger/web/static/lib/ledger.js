// Entries of a ledger as a table: what each holds, when, and how that is known.
import { html } from "vl/lib/dom";
import { OWNERS, PHASES } from "vl/lib/colours";
import { Evidence } from "vl/lib/parts";
import { bytes } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/plan";

addWords(words);

/** `entries` of a document; `label` names the table. Owners come in the order of the stack, each with its sum. */
export function Ledger({ entries, label }) {
  const groups = OWNERS.map((owner) => [owner, entries.filter((each) => each.owner === owner)]).filter(([, own]) => own.length);
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="ledger">
    <thead><tr><th scope="col">${t("plan.entry")}</th>${["low", "expected", "high"].map((each) => html`<th scope="col" class="n">${t(each)}</th>`)}
      <th scope="col">${t("evidence")}</th><th scope="col">${t("plan.lifetime")}</th><th scope="col">${t("plan.phases")}</th></tr></thead>
    ${groups.map(([owner, own]) => html`<tbody key=${owner}>
      <tr class="owner"><th scope="rowgroup"><span class="swatch" style=${`background:var(--${owner.replace(/_/g, "-")})`} aria-hidden="true"></span>${owner}</th><td></td><td class="n">${own.length > 1 ? bytes(own.reduce((sum, each) => sum + each.bytes.expected, 0)) : ""}</td><td></td><td></td><td></td><td></td></tr>
      ${own.map((each) => html`<${Row} key=${each.name} entry=${each} />`)}</tbody>`)}
  </table></div>`;
}

function Row({ entry }) {
  const { low, expected, high } = entry.bytes;
  const isExact = low === high;
  return html`<tr><th scope="row">${entry.name}${!entry.inside_budget && html`<span class="dim"> ${t("plan.outside")}</span>`}${entry.is_remainder && html`<span class="dim"> ${t("plan.remainder")}</span>`}</th>
    <td class="n">${isExact ? "" : bytes(low)}</td><td class="n">${bytes(expected)}</td><td class="n">${isExact ? "" : bytes(high)}</td>
    <td><${Evidence} evidence=${entry.evidence} interval=${entry.bytes} /></td><td>${entry.lifetime}</td><td class="whole">${phases(entry.phases)}</td></tr>`;
}

/** "all", "warmup to recovery", "decode". */
function phases(held) {
  if (!held.length) return t("plan.never");
  if (held.length === PHASES.length) return t("plan.always");
  const places = held.map((each) => PHASES.indexOf(each));
  const isRun = places.every((each, at) => at === 0 || each === places[at - 1] + 1);
  return isRun && held.length > 2 ? t("plan.span", { first: held[0], last: held[held.length - 1] }) : held.join(", ");
}
