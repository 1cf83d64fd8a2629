// Sizes as bars that lie, each with its name at the left and its number at its end.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip, whiskers } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { bytes } from "vl/lib/units";

const ROW_PX = 40;
const LINE_PX = 14;
const LETTER_PX = 6.5;

/** `rows`: {name, value, low, high, tone} in bytes, the first at the top; `line`: {name, value} across all of them. */
export function Bars({ rows, line, says, columns, caption, shown = bytes }) {
  const hasRange = rows.some((row) => row.low !== undefined && row.low < row.high);
  const most = Math.max(...rows.map((row) => row.high ?? row.value));
  const make = () => ({
    grid: { left: 8, right: 92, top: line ? 30 : 6, bottom: 6, containLabel: true },
    tooltip: tooltip({ formatter: ({ dataIndex }) => told(rows[dataIndex], shown) }),
    xAxis: axis({ type: "value", min: 0, axisLabel: { show: false }, splitLine: { show: false }, max: line ? ({ max }) => Math.max(max, line.value * 1.05) : undefined }),
    yAxis: axis({ type: "category", inverse: true, data: rows.map((row) => row.name), axisTick: { show: false }, axisLabel: { width: labelWidth(), overflow: "break", lineHeight: LINE_PX, interval: 0, color: colour("ink") } }),
    series: [
      {
        type: "bar", barMaxWidth: 20, cursor: "default",
        data: rows.map((row) => ({ value: row.value, itemStyle: { color: colour(row.tone ?? "s1") } })),
        label: { show: true, position: "right", distance: hasRange ? 10 : 5, color: colour("ink"), formatter: ({ dataIndex }) => shown(rows[dataIndex].value) },
        markLine: line && {
          symbol: "none", silent: true, lineStyle: { color: colour("bad"), width: 2, type: "dashed" },
          label: { formatter: () => `${line.name} ${shown(line.value)}`, color: colour("bad"), position: "start", align: line.value * 3 > most ? "center" : "left" }, data: [{ xAxis: line.value }],
        },
      },
      ...(hasRange ? [whiskers(rows.map((row, place) => [place, row.low ?? row.value, row.high ?? row.value]), { across: true })] : []),
    ],
  });
  return html`<${Chart} make=${make} deps=${[rows, line]} says=${says} columns=${columns ?? ["", { name: "B", number: true }]} caption=${caption}
    rows=${rows.map((row) => [row.name, row.value.toLocaleString("en-US")])} height=${rows.length * rowHeight(rows) + (line ? 40 : 14)} />`;
}

/** Room for the longest name in as many lines as it takes. */
const rowHeight = (rows) => Math.max(ROW_PX, ...rows.map((row) => (Math.ceil((row.name.length * LETTER_PX) / labelWidth()) + 1) * LINE_PX));
const labelWidth = () => (document.documentElement.clientWidth < 640 ? 112 : 240);
const told = (row, shown) => `${safe(row.name)}<br><b>${safe(shown(row.value))}</b>${row.low < row.high ? ` (${safe(shown(row.low))} – ${safe(shown(row.high))})` : ""}`;
