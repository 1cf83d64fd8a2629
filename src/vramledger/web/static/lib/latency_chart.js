// Distributions of latencies as curves: the share of requests that took at most so long, on a logarithmic scale of time.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour, seriesColour } from "vl/lib/colours";
import { t } from "vl/lib/words";
import { aimsOf, ms, msOnAxis } from "vl/lib/load";

const LEAST_MS = 0.1;
const DASHES = ["solid", "dashed", "dotted", [10, 4, 2, 4], [2, 6]];

/** `curves`: [{name, percent, values (ms)}]; `aims` of a document's conditions, or null. */
export function Distribution({ curves, aims, says, caption, height = 300 }) {
  const drawn = curves.filter((each) => each.values.length);
  if (!drawn.length) return null;
  const percent = drawn[0].percent;
  return html`<${Chart} make=${() => option(drawn, aims)} deps=${[curves, aims]} says=${says} height=${height} caption=${caption}
    columns=${[t("load.percent"), ...drawn.map((each) => ({ name: each.name, number: true }))]}
    rows=${percent.map((each, place) => [`${each}%`, ...drawn.map((curve) => ms(curve.values[place]))])} />`;
}

function option(curves, aims) {
  const all = curves.flatMap((each) => each.values.filter((value) => value >= LEAST_MS));
  const limits = aims === null ? [] : aimsOf(aims);
  const least = 10 ** Math.floor(Math.log10(Math.min(...all, ...limits.map(([, value]) => value))));
  const most = 10 ** Math.ceil(Math.log10(Math.max(...all, ...limits.map(([, value]) => value))));
  return {
    legend: { top: 0, type: "scroll", textStyle: { color: colour("ink") }, itemWidth: 30 },
    tooltip: tooltip({ trigger: "item", formatter: ({ seriesName, value }) => `<b>${safe(seriesName)}</b><div>${safe(`${value[1]}% ≤ ${ms(value[0])}`)}</div>` }),
    grid: { left: 46, right: 22, top: 52, bottom: 48 },
    xAxis: axis({ type: "log", min: least, max: Math.max(most, least * 10), name: t("load.took"), nameLocation: "middle", nameGap: 28, axisLabel: { formatter: msOnAxis, hideOverlap: true }, minorSplitLine: { show: false } }),
    yAxis: axis({ type: "value", min: 0, max: 100, axisLabel: { formatter: "{value}%" } }),
    series: curves.map((each, place) => ({
      type: "line", name: each.name, symbolSize: 5, lineStyle: { width: 2, type: DASHES[place % DASHES.length], color: seriesColour(place) }, itemStyle: { color: seriesColour(place) },
      data: each.values.map((value, rank) => [Math.max(value, least), each.percent[rank]]),
      ...(place === 0 && limits.length ? { markLine: lines(limits) } : {}),
    })),
  };
}

function lines(limits) {
  return {
    silent: true, symbol: "none", animation: false, lineStyle: { color: colour("bad"), type: "dashed", width: 1.2 },
    data: limits.map(([name, value], place) => ({ xAxis: value, label: { formatter: `${name} ${t("load.aim")}`, color: colour("bad"), position: "end", distance: 4 + (place % 2) * 12 } })),
  };
}
