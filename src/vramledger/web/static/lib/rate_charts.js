// Charts of loads that were tried: goodput with its band and the knee, latency percentiles, the pool, all against the rate.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour, seriesColour } from "vl/lib/colours";
import { count, number } from "vl/lib/units";
import { t } from "vl/lib/words";
import { ms, msOnAxis, perSecond, share } from "vl/lib/load";

const MOST_TIMES = 4;

/** Loads worth drawing: up to four times the answer. */
function shownLoads(found) {
  const most = MOST_TIMES * (found.load || Math.max(...found.loads.map((each) => each.load)));
  return found.loads.filter((each) => each.load <= most);
}

export function Goodput({ found }) {
  const loads = shownLoads(found);
  const aim = found.conditions.aims.goodput;
  const values = { aim: share(aim), rate: number(found.requests_per_s), low: number(found.low_requests_per_s), high: number(found.high_requests_per_s), confidence: share(found.confidence), least: number(loads[0].requests_per_s), most: number(loads[loads.length - 1].requests_per_s) };
  const isWhole = found.loads.every((each) => each.goodput.expected >= aim);
  const says = t(!found.load ? "load.goodput.none" : isWhole ? "load.goodput.all" : "load.goodput.says", values);
  return html`<${Chart} caption=${says} make=${() => goodput(found, loads)} deps=${[found]} says=${says} height=${340}
    columns=${[t("load.rate"), ...[t("load.goodput"), "low", "high", t("load.preemptions")].map((name) => ({ name, number: true }))]}
    rows=${loads.map((each) => [number(each.requests_per_s), ...["expected", "low", "high"].map((key) => share(each.goodput[key])), count(each.preemptions)])} />`;
}

function goodput(found, loads) {
  const at = (value) => loads.map((each) => [each.requests_per_s, value(each) * 100]);
  const aim = found.conditions.aims.goodput * 100;
  const hidden = { type: "line", symbol: "none", stack: "band", silent: true, lineStyle: { opacity: 0 }, stackStrategy: "all" };
  return {
    legend: { top: 0, type: "scroll", textStyle: { color: colour("ink") }, data: [t("load.goodput"), t("load.band", { share: share(found.confidence) })] },
    grid: { left: 50, right: 24, top: 52, bottom: 48 },
    tooltip: tooltip({ trigger: "item", formatter: ({ value }) => `<b>${safe(perSecond(value[0]))}</b><div>${safe(t("load.goodput"))}: ${safe(share(value[1] / 100))}</div>` }),
    xAxis: rate(loads),
    yAxis: axis({ type: "value", min: Math.max(0, Math.floor((Math.min(aim, ...loads.map((each) => each.goodput.low * 100)) - 2) / 10) * 10), max: 100, axisLabel: { formatter: "{value}%" } }),
    series: [
      { ...hidden, name: "low", data: at((each) => each.goodput.low) },
      { ...hidden, name: t("load.band", { share: share(found.confidence) }), areaStyle: { color: colour("s1"), opacity: 0.22 }, itemStyle: { color: colour("s1"), opacity: 0.4 }, data: at((each) => each.goodput.high - each.goodput.low) },
      {
        type: "line", name: t("load.goodput"), symbolSize: 7, lineStyle: { width: 2, color: colour("s1") }, itemStyle: { color: colour("s1") }, data: at((each) => each.goodput.expected),
        markLine: { silent: true, symbol: "none", animation: false, data: [
          { yAxis: aim, lineStyle: { color: colour("bad"), type: "dashed" }, label: { formatter: `${t("load.aim")} ${share(aim / 100)}`, color: colour("bad"), position: "insideStartBottom" } },
          ...(found.load ? [knee(found)] : []),
        ] },
        ...(found.load ? { markArea: { silent: true, animation: false, itemStyle: { color: colour("good"), opacity: 0.14 }, data: [[{ xAxis: found.low_requests_per_s }, { xAxis: found.high_requests_per_s }]] } } : {}),
      },
    ],
  };
}

const knee = (found) => ({ xAxis: found.requests_per_s, lineStyle: { color: colour("good"), width: 2, type: "solid" }, label: { formatter: `${t("load.knee")} ${perSecond(found.requests_per_s)}`, color: colour("good"), position: "end", distance: 7 } });

const rate = (loads) => axis({ type: "value", name: t("load.rate"), nameLocation: "middle", nameGap: 28, min: 0, max: nice(loads[loads.length - 1].requests_per_s), axisLabel: { hideOverlap: true, formatter: number } });

/** A round end of an axis just beyond a value. */
function nice(value) {
  const step = 10 ** Math.floor(Math.log10(value)) / 2;
  return Math.ceil(value / step) * step;
}

/** Percentiles of one time against the rate; `name` is TTFT, TPOT or latency. */
export function Against({ found, name, field, aim }) {
  const loads = shownLoads(found).filter((each) => each[field]);
  if (!loads.length) return null;
  const near = loads.reduce((best, each) => (Math.abs(each.load - found.load) < Math.abs(best.load - found.load) ? each : best), loads[0]);
  const values = Object.fromEntries(["p50", "p95", "p99"].map((key) => [key, ms(near[field][key])]));
  const says = t(found.load ? "load.against.says" : "load.against.none", { name, ...values });
  const make = () => ({
    legend: { top: 0, textStyle: { color: colour("ink") }, itemWidth: 28 },
    grid: { left: 64, right: 20, top: 46, bottom: 48 },
    tooltip: tooltip({ trigger: "item", formatter: ({ seriesName, value }) => `<b>${safe(perSecond(value[0]))}</b><div>${safe(`${name} ${seriesName}: ${ms(value[1])}`)}</div>` }),
    xAxis: rate(loads),
    yAxis: axis({ type: "log", axisLabel: { formatter: msOnAxis, hideOverlap: true }, minorSplitLine: { show: false }, min: ({ min }) => 10 ** Math.floor(Math.log10(Math.max(min, 0.01))), max: ({ max }) => 10 ** Math.ceil(Math.log10(Math.max(max, aim ?? 0, 0.1))) }),
    series: ["p50", "p95", "p99"].map((key, place) => ({
      type: "line", name: key, symbolSize: 5, lineStyle: { width: 2, color: seriesColour(place), type: ["solid", "dashed", "dotted"][place] }, itemStyle: { color: seriesColour(place) },
      data: loads.map((each) => [each.requests_per_s, Math.max(each[field][key], 0.01)]),
      ...(place === 2 ? { markLine: { silent: true, symbol: "none", animation: false, data: [
        ...(aim ? [{ yAxis: aim, lineStyle: { color: colour("bad"), type: "dashed" }, label: { formatter: `${t("load.aim")} ${ms(aim)}`, color: colour("bad"), position: "insideStartTop" } }] : []),
        ...(found.load ? [{ ...knee(found), label: { show: false } }] : []),
      ] } } : {}),
    })),
  });
  return html`<${Chart} caption=${t("load.against", { name })} make=${make} deps=${[found, field]} says=${says} height=${270}
    columns=${[t("load.rate"), ...["p50", "p95", "p99"].map((key) => ({ name: key, number: true }))]} rows=${loads.map((each) => [number(each.requests_per_s), ...["p50", "p95", "p99"].map((key) => ms(each[field][key]))])} />`;
}

/** The share of blocks used, and preemptions, against the rate. */
export function PoolAgainst({ found }) {
  const loads = shownLoads(found);
  const last = loads[loads.length - 1];
  const make = () => ({
    legend: { top: 0, textStyle: { color: colour("ink") } },
    grid: { left: 50, right: 56, top: 46, bottom: 48 },
    tooltip: tooltip({ trigger: "item", formatter: ({ seriesName, value, seriesIndex }) => `<b>${safe(perSecond(value[0]))}</b><div>${safe(seriesName)}: ${safe(seriesIndex ? count(value[1]) : share(value[1] / 100))}</div>` }),
    xAxis: rate(loads),
    yAxis: [axis({ type: "value", min: 0, max: 100, axisLabel: { formatter: "{value}%" } }), axis({ type: "value", min: 0, minInterval: 1, splitLine: { show: false }, axisLabel: { hideOverlap: true } })],
    series: [
      { type: "line", name: t("load.used"), symbolSize: 5, lineStyle: { width: 2, color: colour("s3") }, itemStyle: { color: colour("s3") }, data: loads.map((each) => [each.requests_per_s, each.used_p95 * 100]) },
      { type: "line", name: t("load.preemptions"), yAxisIndex: 1, symbol: "diamond", symbolSize: 7, lineStyle: { width: 2, type: "dashed", color: colour("s2") }, itemStyle: { color: colour("s2") }, data: loads.map((each) => [each.requests_per_s, each.preemptions]) },
    ],
  });
  return html`<${Chart} caption=${t("load.pool.chart")} make=${make} deps=${[found]} says=${t("load.pool.says", { used: share(last.used_p95), preemptions: count(last.preemptions) })} height=${270}
    columns=${[t("load.rate"), { name: t("load.used"), number: true }, { name: t("load.preemptions"), number: true }]} rows=${loads.map((each) => [number(each.requests_per_s), share(each.used_p95), count(each.preemptions)])} />`;
}
