// What was measured of an engine's memory, by owner, and how that stands to a plan.
import { html } from "vl/lib/dom";
import { OWNERS, ownerColour } from "vl/lib/colours";
import { useAppearance } from "vl/lib/chart";
import { Evidence, Table } from "vl/lib/parts";
import { bytes, count, number, range } from "vl/lib/units";
import { t } from "vl/lib/words";

const STANDINGS = { inside: ["live.inside", "good"], outside: ["live.outside", "bad"], untold: ["live.untold.standing", "unsure"] };

/** measurement: what `vramledger measure --json` writes. */
export function Ledger({ measurement }) {
  useAppearance();
  const { figures, pools, host } = measurement;
  const covered = new Set(figures.flatMap((each) => each.owners));
  const missing = OWNERS.filter((owner) => !covered.has(owner) && owner !== "headroom" && owner !== "allocator");
  const rows = figures.map((each) => [
    html`<span class="owners">${each.owners.map((owner) => html`<span class="swatch" style=${{ background: ownerColour(owner) }}></span>`)} ${each.owners.join(", ")}</span>`,
    `${each.name}${each.phase ? ` (${each.phase})` : ""}${each.ranks.length > 0 ? `, ${t("live.rank", { ranks: each.ranks.join(", ") })}` : ""}`,
    told(each.bytes, bytes), html`<${Evidence} evidence=${each.evidence} interval=${each.bytes} />`,
  ]);
  const poolRows = pools.map((each) => [
    html`<span class="owners"><span class="swatch" style=${{ background: ownerColour("kv_cache") }}></span> KV pool</span>`,
    [each.tokens && `${told(each.tokens, count)} tokens`, each.num_blocks && `${told(each.num_blocks, count)} blocks${each.block_size ? ` of ${each.block_size}` : ""}`].filter(Boolean).join(", "),
    each.bytes ? told(each.bytes, bytes) : "", html`<${Evidence} evidence=${each.evidence} interval=${each.bytes} />`,
  ]);
  const all = [...rows, ...poolRows];
  return html`${all.length ? html`<${Table} columns=${[t("live.owner"), t("live.part"), { name: t("live.bytes"), number: true }, t("evidence")]} rows=${all} label=${t("live.ledger")} />` : html`<p class="dim">${t("live.nothing.measured")}</p>`}
    ${figures.length > 0 && missing.length > 0 && html`<p class="dim">${t("live.untold", { owners: missing.join(", ") })}</p>`}
    ${host.length > 0 && html`<details><summary>${t("live.host.table")} (${host.length})</summary><${Table} columns=${[t("live.process"), { name: t("live.resident"), number: true }, { name: "PSS", number: true }, { name: t("live.private"), number: true }]}
      rows=${host.map((each) => [`${each.process}${each.pid === null ? "" : ` (${each.pid})`}${each.phase ? `, ${each.phase}` : ""}`, shownBytes(each.rss_bytes), shownBytes(each.pss_bytes), shownBytes(each.private_bytes)])} label=${t("live.host.table")} /></details>`}`;
}

/** found: what `vramledger reconcile --json` writes. */
export function Drift({ found }) {
  const [word, tone] = STANDINGS[found.standing];
  const lines = found.lines.filter((each) => each.measured !== null && each.predicted !== null);
  const rows = lines.map((each) => {
    const [said, shade] = STANDINGS[each.standing] ?? STANDINGS.untold;
    return [`${each.name}${each.phase ? ` (${each.phase})` : ""}`, html`<span class=${`chip ${shade}`}>${t(said)}</span>`, shown(each.predicted, each.unit), shown(each.measured, each.unit),
      each.difference === null ? "" : `${each.difference > 0 ? "+" : ""}${amount(each.difference, each.unit)}`, each.reasons.length ? each.reasons[0].text : ""];
  });
  return html`<p class=${`chip ${tone}`}>${t(word)}</p>
    ${found.differences.length > 0 && html`<ul>${found.differences.map((each) => html`<li><code>${each.flag ?? each.name}</code>: ${t("live.planned")} ${String(each.planned)}, ${t("live.measured")} ${String(each.measured)}</li>`)}</ul>`}
    <${Table} columns=${[t("live.figure"), t("live.standing"), { name: t("live.planned"), number: true }, { name: t("live.measured"), number: true }, { name: t("live.difference"), number: true }, t("live.reason")]} rows=${rows} label=${t("live.drift")} />
    ${found.notes.length > 0 && html`<ul class="dim">${found.notes.map((each) => html`<li>${each}</li>`)}</ul>`}`;
}

/** A range whose ends look alike is one number. */
const told = (interval, shown) => (shown(interval.low) === shown(interval.high) ? shown(interval.expected) : range(interval, shown));
const shownBytes = (size) => (size === null ? t("live.unknown") : bytes(size));
const amount = (value, unit) => (unit === "bytes" ? bytes(value) : number(value));
const shown = (interval, unit) => told(interval, (value) => amount(value, unit));
