// What one holds more or less than another, step by step, as bars that lie: names stay readable on a phone.
import { axis, Chart, safe, tooltip, whiskers } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { html } from "vl/lib/dom";
import { GIB, signed } from "vl/lib/units";
import { t } from "vl/lib/words";

const ROW_PX = 30;

/**
 * steps: [{name, bytes, low, high}] in the order shown, each from where the one before ended; `total` is the name of their sum, the last row.
 * `apart` for changes that do not add up, each from zero. `says` gets the steps in words.
 */
export function Waterfall({ steps, total, says, caption, apart = false }) {
  const rows = [];
  let at = 0;
  for (const step of steps) {
    rows.push({ ...step, from: at, to: at + step.bytes });
    if (!apart) at += step.bytes;
  }
  if (total) rows.push({ name: total, from: 0, to: at, bytes: at, isTotal: true });
  const spread = (row) => (row.low === undefined || row.isTotal || (row.low === row.bytes && row.high === row.bytes) ? "" : `${signed(row.low)} … ${signed(row.high)}`);
  const paint = (row) => (row.isTotal ? colour("field") : row.bytes > 0 ? colour("s2") : colour("s1"));
  const names = { type: "category", inverse: true, axisTick: { show: false }, axisLine: { show: false } };
  const make = () => ({
    grid: { left: 8, right: 8, top: 6, bottom: 40, containLabel: true },
    tooltip: tooltip({
      formatter: ({ dataIndex }) => {
        const row = rows[dataIndex];
        return row ? `<b>${safe(row.name)}</b><br>${safe(signed(row.bytes))}${spread(row) ? `<br>${safe(spread(row))}` : ""}` : "";
      },
    }),
    xAxis: axis({ type: "value", name: "GiB", nameLocation: "middle", nameGap: 26, axisLabel: { hideOverlap: true } }),
    // Amounts stand in a column of their own, where no bar or whisker can hide them.
    yAxis: [
      axis({ ...names, data: rows.map((row) => row.name), axisLabel: { color: colour("ink"), width: 120, overflow: "truncate" } }),
      axis({ ...names, position: "right", data: rows.map((row) => signed(row.bytes)), axisLabel: { color: colour("ink") } }),
    ],
    series: [
      {
        type: "bar", stack: "all", stackStrategy: "all", silent: true, itemStyle: { color: "transparent" }, tooltip: { show: false },
        data: rows.map((row) => Math.min(row.from, row.to) / GIB),
      },
      {
        type: "bar", stack: "all", stackStrategy: "all", barWidth: "60%", barMinHeight: 2,
        data: rows.map((row) => ({ value: Math.abs(row.to - row.from) / GIB, itemStyle: { color: paint(row) } })),
      },
      whiskers(
        rows.map((row, place) => [place, (row.from + row.low) / GIB, (row.from + row.high) / GIB]).filter(([place]) => spread(rows[place])),
        { across: true, name: t("compare.range") },
      ),
    ],
  });
  return html`<${Chart} make=${make} deps=${[JSON.stringify(rows)]} height=${rows.length * ROW_PX + 52} caption=${caption}
    says=${says(steps.map((step) => `${step.name} ${signed(step.bytes)}`).join(", "))}
    columns=${[t("compare.step"), { name: t("compare.change"), number: true }, { name: t("compare.range"), number: true }]}
    rows=${rows.map((row) => [row.name, signed(row.bytes), spread(row)])} />`;
}
