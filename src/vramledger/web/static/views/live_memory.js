// What was measured of an engine's memory, by owner.
import { html } from "vl/lib/dom";
import { OWNERS, ownerColour } from "vl/lib/colours";
import { useAppearance } from "vl/lib/chart";
import { Evidence, Table } from "vl/lib/parts";
import { bytes, count, range } from "vl/lib/units";
import { t } from "vl/lib/words";

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

/** A range whose ends look alike is one number. */
const told = (interval, shown) => (shown(interval.low) === shown(interval.high) ? shown(interval.expected) : range(interval, shown));
const shownBytes = (size) => (size === null ? t("live.unknown") : bytes(size));
