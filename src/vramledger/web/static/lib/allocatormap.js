// The allocator's segments and blocks, each in its place, all to one scale.
import { html, useMemo } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { bytes, count } from "vl/lib/units";
import { t } from "vl/lib/words";

const FEW_ROWS = 24;
const MOST_ROWS = 160;
const BLOCKS_A_ROW = 300; // so that most are wider than a pixel
const HIGH_PX = 22;
const LOW_PX = 11;
const MOST_OUTLINED = 400;
const TABLE_ROWS = 200;
const KINDS = [["allocated", "s1"], ["pending", "activation"], ["pinned", "s2"], ["releasable", "allocator"]];

/** `map`: segments and frames as `vramledger snapshot --json --blocks` writes them; `pool`: which of its pools, "a,b". */
export function AllocatorMap({ map, pool }) {
  const segments = useMemo(() => map.segments.filter((each) => each.pool_id.join() === pool), [map, pool]);
  const { blocks, rows, rowBytes, largest, drawn } = useMemo(() => placed(segments), [segments]);
  const rowPx = rows > 2 * FEW_ROWS ? LOW_PX : HIGH_PX;
  const edge = drawn / rows < BLOCKS_A_ROW / 4 ? { stroke: colour("paper"), lineWidth: 0.5 } : {};
  const make = () => ({
    grid: { left: 8, right: 36, top: 40, bottom: 26, containLabel: true },
    legend: { top: 0, left: 0, selectedMode: false, icon: "rect", textStyle: { color: colour("ink") }, data: KINDS.map(([kind]) => t(`snapshot.${kind}`)) },
    tooltip: tooltip({ formatter: ({ seriesIndex, dataIndex }) => tip(blocks[KINDS[seriesIndex]?.[0]]?.[dataIndex], segments, map.frames) }),
    xAxis: axis({ type: "value", min: 0, max: rowBytes, interval: rowBytes / 4, splitLine: { show: false }, axisLabel: { formatter: (value) => bytes(value, 1), hideOverlap: true, color: colour("dim") } }),
    yAxis: axis({ type: "value", inverse: true, min: 0, max: rows, show: false }),
    series: [
      ...KINDS.map(([kind, name]) => ({
        type: "custom", progressive: 0, name: t(`snapshot.${kind}`), itemStyle: { color: colour(name) }, data: blocks[kind].map((each) => [each.from, each.row, each.until]),
        encode: { x: [0, 2], y: 1 }, renderItem: (_params, api) => rectangle(api, { fill: colour(name), ...edge }),
      })),
      {
        type: "custom", progressive: 0, silent: true, data: segments.length > MOST_OUTLINED ? [] : outlines(segments, rowBytes), encode: { x: [0, 2], y: 1 },
        renderItem: (_params, api) => rectangle(api, { fill: "none", stroke: colour("ink"), lineWidth: 0.75, opacity: 0.55 }),
      },
      {
        type: "custom", silent: true, z: 6, data: largest ? [[largest.from, largest.row, largest.until]] : [], encode: { x: [0, 2], y: 1 },
        renderItem: (_params, api) => rectangle(api, { fill: "none", stroke: colour("bad"), lineWidth: 2.5 }),
      },
    ],
  });
  const told = segments.slice(0, TABLE_ROWS);
  return html`<${Chart} key=${drawn > 3000 ? "canvas" : "svg"} renderer=${drawn > 3000 ? "canvas" : "svg"} make=${make} deps=${[segments]} height=${rows * rowPx + 66}
    says=${t("snapshot.says", { segments: count(segments.length), blocks: count(drawn), largest: largest ? bytes(largest.bytes) : "0 B" })} caption=${t(segments.length > MOST_OUTLINED ? "snapshot.caption.dense" : "snapshot.caption")}
    columns=${[t("snapshot.segment"), { name: t("snapshot.size"), number: true }, { name: t("snapshot.blocks"), number: true }, { name: t("snapshot.free"), number: true }, { name: t("snapshot.largest"), number: true }, t("snapshot.held")]}
    rows=${told.map((each) => summary(each, map.frames))} />`;
}

function rectangle(api, style) {
  const [x, y] = api.coord([api.value(0), api.value(1)]);
  const [end, below] = api.coord([api.value(2), api.value(1) + 1]);
  const gap = (below - y) / 10;
  return { type: "rect", shape: { x, y: y + gap, width: Math.max(end - x, 0.3), height: below - y - 2 * gap }, style };
}

/** Segments beside each other, as many as a row holds, with every block's place. */
function placed(segments) {
  const rowBytes = rowSize(segments);
  const blocks = { allocated: [], pending: [], pinned: [], releasable: [] };
  let largest = null;
  const starts = starting(segments, rowBytes);
  segments.forEach((segment, index) => {
    const { row, from } = starts[index];
    segment.blocks.forEach(([offset, size, state, frame]) => {
      const found = { from: from + offset, until: from + offset + size, row, bytes: size, frame, segment: index };
      blocks[state === "free" ? (segment.is_releasable ? "releasable" : "pinned") : state].push(found);
      if (state === "free" && size > (largest?.bytes ?? 0)) largest = found;
    });
  });
  return { blocks, rows: (starts.at(-1)?.row ?? 0) + 1, rowBytes, largest, drawn: segments.reduce((sum, each) => sum + each.blocks.length, 0) };
}

function starting(segments, rowBytes) {
  let row = 0;
  let used = 0;
  return segments.map((segment) => {
    if (used > 0 && used + segment.size_bytes > rowBytes) {
      row += 1;
      used = 0;
    }
    const from = used;
    used += segment.size_bytes;
    return { row, from };
  });
}

function outlines(segments, rowBytes) {
  return starting(segments, rowBytes).map(({ row, from }, index) => [from, row, from + segments[index].size_bytes]);
}

function rowSize(segments) {
  const total = segments.reduce((sum, each) => sum + each.size_bytes, 0);
  const blocks = segments.reduce((sum, each) => sum + each.blocks.length, 0);
  const rows = Math.min(MOST_ROWS, Math.max(FEW_ROWS, Math.ceil(blocks / BLOCKS_A_ROW)));
  return segments.reduce((most, each) => Math.max(most, each.size_bytes), Math.max(1, Math.ceil(total / rows)));
}

function tip(block, segments, frames) {
  if (!block) return "";
  const segment = segments[block.segment];
  return [`<b>${safe(bytes(block.bytes))}</b>`, block.frame >= 0 ? safe(frames[block.frame]) : "", safe(t("snapshot.within", { size: bytes(segment.size_bytes), address: segment.address }))].filter(Boolean).join("<br>");
}

function summary(segment, frames) {
  const free = segment.blocks.filter(([, , state]) => state === "free").map(([, size]) => size);
  const held = [...new Set(segment.blocks.filter(([, , state]) => state !== "free").map(([, , , frame]) => frames[frame] ?? ""))].filter(Boolean);
  return [segment.address, bytes(segment.size_bytes), count(segment.blocks.length), bytes(free.reduce((sum, each) => sum + each, 0)), bytes(Math.max(0, ...free)), held.slice(0, 3).join(", ") + (held.length > 3 ? ` +${held.length - 3}` : "")];
}
