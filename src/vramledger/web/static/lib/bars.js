// Memory by owner, one bar that lies for each of several things on one scale, with the line of its device and of its budget.
import { axis, Chart, safe, tooltip, whiskers } from "vl/lib/chart";
import { colour, ownerColour, OWNERS } from "vl/lib/colours";
import { html } from "vl/lib/dom";
import { bytes, GIB } from "vl/lib/units";
import { t } from "vl/lib/words";

const ROW_PX = 46;

/** rows: [{name, byOwner, held, low, high, device, budget}], all bytes. */
export function MemoryBars({ rows }) {
  const owners = OWNERS.filter((owner) => rows.some((row) => row.byOwner[owner]));
  const make = () => ({
    grid: { left: 8, right: 16, top: 62, bottom: 40, containLabel: true },
    legend: { top: 0, left: 0, itemWidth: 12, itemHeight: 12, itemGap: 10, selectedMode: false, textStyle: { color: colour("ink") }, data: owners },
    tooltip: tooltip({
      trigger: "axis",
      axisPointer: { type: "shadow" },
      formatter: (items) => {
        const row = rows[items[0].dataIndex];
        const parts = owners.filter((owner) => row.byOwner[owner]).map((owner) => `${safe(owner)}: ${bytes(row.byOwner[owner])}`);
        return [`<b>${safe(row.name)}</b>`, ...parts, `${t("compare.held")}: ${bytes(row.held)} (${bytes(row.low)} … ${bytes(row.high)})`, `${t("compare.budget")}: ${bytes(row.budget)}`, `${t("compare.device")}: ${bytes(row.device)}`].join("<br>");
      },
    }),
    xAxis: axis({ type: "value", name: "GiB", nameLocation: "middle", nameGap: 26, axisLabel: { hideOverlap: true, showMaxLabel: false }, max: Math.ceil((Math.max(...rows.map((row) => Math.max(row.device, row.held, row.high))) / GIB) * 1.02) }),
    yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.name), axisTick: { show: false }, axisLabel: { color: colour("ink"), width: 130, overflow: "truncate" } }),
    series: [
      ...owners.map((owner) => ({
        name: owner, type: "bar", stack: "memory", barWidth: "56%", data: rows.map((row) => (row.byOwner[owner] ?? 0) / GIB),
        itemStyle: { color: ownerColour(owner), borderColor: colour("paper"), borderWidth: 0.5 },
      })),
      whiskers(rows.map((row, place) => [place, row.low / GIB, row.high / GIB]), { across: true, name: t("compare.unit.range") }),
      ticks(rows.map((row, place) => [place, row.device / GIB]), { name: t("compare.unit.device"), stroke: "bad" }),
      ticks(rows.map((row, place) => [place, row.budget / GIB]), { name: t("compare.unit.budget"), stroke: "ink", dash: [4, 3] }),
    ],
  });
  return html`<${Chart} make=${make} deps=${[JSON.stringify(rows)]} height=${rows.length * ROW_PX + 108} caption=${t("compare.lines")}
    says=${t("compare.bars.says", { names: rows.map((row) => row.name).join(", "), held: rows.map((row) => `${row.name} ${bytes(row.held)} / ${bytes(row.device)}`).join(", ") })}
    columns=${["", ...[...owners, t("compare.held"), t("compare.unit.range"), t("compare.budget"), t("compare.device")].map((name) => ({ name, number: true }))]}
    rows=${rows.map((row) => [row.name, ...owners.map((owner) => bytes(row.byOwner[owner] ?? 0)), bytes(row.held), `${bytes(row.low)} … ${bytes(row.high)}`, bytes(row.budget), bytes(row.device)])} />`;
}

/** An upright line through each bar: data [place, value]. */
function ticks(data, { name, stroke, dash = [] }) {
  return {
    type: "custom",
    name,
    z: 6,
    silent: true,
    data,
    encode: { x: 1, y: 0 },
    renderItem: (_params, api) => {
      const [x, y] = api.coord([api.value(1), api.value(0)]);
      const half = api.size([0, 1])[1] * 0.42;
      return { type: "line", shape: { x1: x, y1: y - half, x2: x, y2: y + half }, style: { stroke: colour(stroke), lineWidth: 2, lineDash: dash } };
    },
  };
}
