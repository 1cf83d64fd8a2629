// An allocator snapshot: what is reserved, what is free in which pieces, what keeps it, and every block in its place.
import { html, useState } from "vl/lib/dom";
import { AllocatorMap } from "vl/lib/allocatormap";
import { Bars } from "vl/lib/sizebars";
import { Facts, Select, Table } from "vl/lib/parts";
import { bytes, count } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/diagnose";

addWords(words);

/** document: what `vramledger snapshot --json` writes, with `--blocks` for the map. */
export function View({ document: snapshot }) {
  return html`<div class="snapshot">
    ${snapshot.devices.length === 0 && html`<p>${t("snapshot.empty")}</p>`}
    ${snapshot.devices.map((device) => html`<${Device} key=${device.device} device=${device} file=${snapshot.file} />`)}
    ${snapshot.notes.length > 0 && html`<ul>${snapshot.notes.map((each) => html`<li>${each}</li>`)}</ul>`}
    ${Object.keys(snapshot.settings).length > 0 && html`<details><summary>${t("snapshot.settings")}</summary><dl>${Object.entries(snapshot.settings).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></details>`}
  </div>`;
}

function Device({ device, file }) {
  const [chosen, choose] = useState(null);
  const pools = device.pools;
  const pool = pools.find((each) => each.pool_id.join() === chosen) ?? pools[0];
  const whole = (field) => pools.reduce((sum, each) => sum + each[field], 0);
  const failed = device.failures.at(-1);
  const open = pools.find((each) => !each.is_private);
  return html`<section aria-label=${t("snapshot.title", { file, device: device.device })}>
    <h2>${t("snapshot.title", { file, device: device.device })}</h2>
    ${failed && html`<${Request} size=${failed.size_bytes} free=${failed.device_free_bytes} frame=${failed.frame} pool=${open} />`}
    ${device.request && html`<${Asked} request=${device.request} />`}
    <${Facts} items=${[
      [t("snapshot.reserved"), bytes(whole("reserved_bytes")), t("snapshot.segments", { count: count(whole("num_segments")) })],
      [t("snapshot.allocated"), bytes(whole("allocated_bytes")), t("snapshot.rounding", { bytes: bytes(whole("rounding_bytes")) })],
      [t("snapshot.free"), bytes(whole("free_bytes")), t("snapshot.pieces", { count: count(whole("num_free_blocks")) })],
      [t("snapshot.pinned"), bytes(whole("pinned_bytes")), t("snapshot.pinned.told"), whole("pinned_bytes") > 0 ? "unsure" : ""],
      open && [t("snapshot.largest"), bytes(open.largest_free_run_bytes), t("snapshot.fragmentation", { percent: (100 * open.fragmentation).toFixed(1) })],
      device.expandable_segments && ["expandable_segments", t("snapshot.on")],
    ]} />
    ${device.map && pools.length > 0 && html`<h2>${t("snapshot.map")}</h2>
      ${pools.length > 1 && html`<div class="narrow"><${Select} label=${t("snapshot.pool")} value=${pool.pool_id.join()} options=${pools.map((each) => [each.pool_id.join(), named(each)])} onChange=${choose} /></div>`}
      <${AllocatorMap} map=${device.map} pool=${pool.pool_id.join()} />
      ${device.map.num_segments_left_out > 0 && html`<p class="dim">${t("snapshot.left", { count: count(device.map.num_segments_left_out) })}</p>`}`}
    ${device.pins.length > 0 && html`<h2>${t("snapshot.pins")}</h2><${Pins} pins=${device.pins} />`}
    <h2>${t("snapshot.pools")}</h2><${Table} label=${t("snapshot.pools")}
      columns=${[t("snapshot.pool"), ...["segments.head", "reserved", "allocated", "pending.head", "free", "releasable.head", "pinned.head", "largest"].map((name) => ({ name: t(`snapshot.${name}`), number: true }))]}
      rows=${pools.map((each) => [named(each), count(each.num_segments), bytes(each.reserved_bytes), bytes(each.allocated_bytes), bytes(each.pending_bytes), bytes(each.free_bytes), bytes(each.releasable_bytes), bytes(each.pinned_bytes), bytes(each.largest_free_run_bytes)])} />
    ${device.failures.length > 1 && html`<details><summary>${t("snapshot.failures", { count: device.failures.length })}</summary><${Table} label=${t("snapshot.failures", { count: device.failures.length })}
      columns=${[{ name: t("snapshot.size"), number: true }, { name: t("snapshot.driver"), number: true }, t("snapshot.frame")]}
      rows=${device.failures.map((each) => [bytes(each.size_bytes), each.device_free_bytes === null ? "" : bytes(each.device_free_bytes), each.frame])} /></details>`}
  </section>`;
}

const named = (pool) => (pool.is_private ? t("snapshot.private", { id: pool.pool_id.join(", ") }) : t("snapshot.default"));

/** The request that failed beside everything that could have served it. */
function Request({ size, free, frame, pool }) {
  const rows = [{ name: t("snapshot.request"), value: size, tone: "bad" }];
  if (pool) rows.push({ name: t("snapshot.largest"), value: pool.largest_free_run_bytes, tone: "s2" }, { name: t("snapshot.allfree"), value: pool.free_bytes, tone: "s1" });
  if (free !== null) rows.push({ name: t("snapshot.driver"), value: free, tone: "s4" });
  return html`<div class="verdict bad"><div class="word">${t("snapshot.failed")}</div>
    <p class="said">${t(free === null ? "snapshot.failed.short" : "snapshot.failed.told", { size: bytes(size), free: bytes(free ?? 0) })}</p>${frame && html`<p><code>${frame}</code></p>`}</div>
    <${Bars} rows=${rows} says=${rows.map((row) => `${row.name} ${bytes(row.value)}`).join("; ")} columns=${["", { name: "B", number: true }]} />`;
}

function Asked({ request }) {
  const tone = request.how === null ? "unsure" : ["not at all", "only with expandable segments"].includes(request.how) ? "bad" : "good";
  return html`<div class=${`verdict ${tone}`} aria-live="polite"><div class="word">${t("snapshot.asked", { size: bytes(request.request_bytes) })}</div>
    <p class="said">${t(request.how === null ? "snapshot.how.untold" : `snapshot.how.${request.how}`)}${request.missing_bytes > 0 ? ` ${t("snapshot.lacks", { bytes: bytes(request.missing_bytes) })}` : ""}</p></div>`;
}

function Pins({ pins }) {
  const rows = pins.map((each) => ({ name: each.frame || t("snapshot.noframe"), value: each.pinned_bytes, tone: "s2" }));
  return html`<p class="dim">${t("snapshot.pins.told")}</p><${Bars} rows=${rows} says=${rows.map((row) => `${row.name} ${bytes(row.value)}`).join("; ")} columns=${[t("snapshot.frame"), { name: "B", number: true }]} />
    <details><summary>${t("snapshot.pins.table")}</summary><${Table} label=${t("snapshot.pins")} columns=${[t("snapshot.frame"), { name: t("snapshot.blocks"), number: true }, { name: t("snapshot.held"), number: true }, { name: t("snapshot.pinned"), number: true }]}
      rows=${pins.map((each) => [each.frame || t("snapshot.noframe"), count(each.num_blocks), bytes(each.held_bytes), bytes(each.pinned_bytes)])} /></details>`;
}
