// What runs now and how it went: facts of the last look, the pool and the requests over time.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour, seriesColour } from "vl/lib/colours";
import { grown, rate } from "vl/lib/history";
import { Facts } from "vl/lib/parts";
import { bytes, count, number, seconds } from "vl/lib/units";
import { t } from "vl/lib/words";

const SHORTEST_MS = 20_000;
const RATE_S = 30;
const unitOf = (point) => t(point.block === 1 ? "live.unit.tokens" : "live.unit.blocks");
const share = (part, whole) => `${((100 * part) / whole).toFixed(0)}%`;
const told = (value, shown = count) => (value === null || value === undefined ? t("live.unknown") : shown(value));
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

/** points: lib/history's, oldest first; look: the last one. */
export function Figures({ points, look }) {
  const last = points[points.length - 1];
  const speed = rate(points, "generated", RATE_S);
  const preempted = grown(points, "preempted");
  const tight = last.free !== null && last.total ? last.free / last.total < 0.1 : false;
  const facts = [
    [t("live.free"), told(last.free), last.total === null ? t("live.pool.untold") : html`${last.free === null ? t("live.whole", { total: count(last.total), unit: unitOf(last) }) : t("live.of", { total: count(last.total), unit: unitOf(last), share: share(last.free, last.total) })}${last.block > 1 && last.free !== null ? html`<br />${t("live.tokens", { tokens: count(last.free * last.block) })}` : ""}`, tight ? "unsure" : ""],
    [t("live.running"), told(last.running), look.gateway && last.queued !== null ? t("live.admitted", { count: count(look.gateway.admitted) }) : "", ""],
    [t("live.waiting"), told(last.waiting), "", last.waiting ? "unsure" : ""],
    look.gateway && last.queued !== null && [t("live.queued"), count(last.queued), last.queued ? t("live.oldest", { time: seconds(look.gateway.queue.oldest_age_ns / 1e9) }) : "", last.queued ? "unsure" : ""],
    [t("live.preempted"), told(last.preempted), preempted === null ? "" : t("live.preempted.more", { count: count(preempted) }), preempted ? "bad" : ""],
    last.generated !== null && [t("live.rate"), speed === null ? t("live.unknown") : t("live.rate.unit", { rate: number(+speed.toFixed(1)) }), t("live.rate.over", { time: seconds(RATE_S) }), ""],
    last.deviceFree !== null && [t("live.device"), bytes(last.deviceFree), last.deviceTotal ? t("live.of", { total: bytes(last.deviceTotal), unit: "", share: share(last.deviceFree, last.deviceTotal) }) : "", ""],
    last.resident !== null && [t("live.host"), bytes(last.resident), t("live.host.processes", { count: last.processes }), ""],
  ];
  return html`<${Facts} kind="live" items=${facts} />`;
}

/** windowMs: how much of the past is drawn. */
export function Pool({ points, windowMs }) {
  const last = points.findLast((point) => point.total !== null) ?? points[points.length - 1];
  const free = points.map((point) => point.free).filter((value) => value !== null);
  if (!free.length && points.every((point) => point.reserved === null && point.limit === null)) return html`<section><h3>${t("live.pool")}</h3><p class="dim">${t(last.total === null ? "live.pool.untold" : "live.pool.use.untold")}</p></section>`;
  const says = last.total === null || last.free === null ? t("live.pool.untold")
    : t("live.pool.says", { free: count(last.free), total: count(last.total), unit: unitOf(last), least: count(Math.min(...free)) });
  /** @type {[string, string, (point: any) => number | null][]} */
  const layers = [
    ["live.used", "kv-cache", (point) => point.used],
    ["live.cached", "adapters", (point) => point.cached],
    ["live.rest", "headroom", (point) => (point.free === null ? null : point.free - (point.cached ?? 0))],
  ];
  if (last.cached === null) layers.splice(1, 1);
  /** @type {[string, number, (point: any) => number | null][]} */
  const known = [["live.reserved", 1, (point) => point.reserved], ["live.limit", 4, (point) => point.limit]];
  const lines = known.filter(([, , value]) => points.some((point) => value(point) !== null));
  const make = () => ({
    ...frame(points, windowMs, last.total === null ? {} : { max: last.total }),
    series: [
      ...layers.map(([name, shade, value]) => ({
        type: "line", name: t(name), stack: "pool", step: "end", symbol: "none", lineStyle: { width: 0 }, emphasis: { disabled: true },
        itemStyle: { color: colour(shade) }, areaStyle: { color: colour(shade), opacity: 1 }, data: points.map((point) => [point.at, value(point)]),
      })),
      ...lines.map(([name, place, value]) => ({
        type: "line", name: t(name), step: "end", symbol: "none", z: 5, lineStyle: { width: 2, type: name === "live.limit" ? "dashed" : "solid", color: seriesColour(place) },
        itemStyle: { color: seriesColour(place) }, data: points.map((point) => [point.at, value(point)]),
      })),
    ],
  });
  const columns = [t("live.time"), ...[...layers, ...lines].map(([name]) => ({ name: `${t(name)} (${unitOf(last)})`, number: true }))];
  const rows = thinned(points).map((point) => [clock(point.at), ...[...layers, ...lines].map(([, , value]) => told(value(point)))]);
  return html`<${Chart} make=${make} deps=${[points, windowMs]} says=${says} columns=${columns} rows=${rows} height=${280} caption=${`${t("live.pool")} (${unitOf(last)})`} />`;
}

export function Requests({ points, windowMs }) {
  const last = points.findLast((point) => point.running !== null) ?? points[points.length - 1];
  /** @type {[string, number, (point: any) => number | null, string][]} */
  const all = [["live.running", 3, (point) => point.running, "solid"], ["live.waiting", 1, (point) => point.waiting, "dashed"], ["live.queued", 2, (point) => point.queued, "dotted"]];
  const kinds = all.filter(([, , value]) => points.some((point) => value(point) !== null));
  const steps = points.map((point, place) => [point.at, place && point.preempted !== null ? grown([points[place - 1], point], "preempted") ?? 0 : 0]);
  const counts = points.some((point) => point.preempted !== null);
  const says = t("live.requests.says", { running: told(last.running), waiting: told(last.waiting), queued: told(last.queued), preempted: told(grown(points, "preempted")) });
  const make = () => ({
    ...frame(points, windowMs, { minInterval: 1 }),
    series: [
      ...kinds.map(([name, place, value, type]) => ({
        type: "line", name: t(name), step: "end", symbol: "none", lineStyle: { width: 2, type, color: seriesColour(place) }, itemStyle: { color: seriesColour(place) },
        data: points.map((point) => [point.at, value(point)]),
      })),
      ...(counts ? [{ type: "bar", name: t("live.preemptions"), barMaxWidth: 6, itemStyle: { color: colour("bad") }, data: steps }] : []),
    ],
  });
  const columns = [t("live.time"), ...kinds.map(([name]) => ({ name: t(name), number: true })), ...(counts ? [{ name: t("live.preempted"), number: true }] : [])];
  const rows = thinned(points).map((point) => [clock(point.at), ...kinds.map(([, , value]) => told(value(point))), ...(counts ? [told(point.preempted)] : [])]);
  return html`<${Chart} make=${make} deps=${[points, windowMs]} says=${says} columns=${columns} rows=${rows} height=${280} caption=${t("live.requests")} />`;
}

function frame(points, windowMs, y) {
  const end = points[points.length - 1].at;
  const begin = Math.max(end - windowMs, Math.min(points[0].at, end - SHORTEST_MS));
  return {
    animation: false,
    grid: { left: 8, right: 14, top: 56, bottom: 6, containLabel: true },
    legend: { top: 0, left: 0, right: 0, itemGap: 12, itemWidth: 18, textStyle: { color: colour("ink") } },
    tooltip: tooltip({
      trigger: "axis",
      formatter: (found) => [safe(clock(found[0].value[0])), ...found.map((each) => `${each.marker}${safe(each.seriesName)}: ${safe(told(each.value[1]))}`)].join("<br>"),
    }),
    xAxis: axis({ type: "time", min: begin, max: end, splitNumber: 4, axisLabel: { hideOverlap: true, formatter: "{HH}:{mm}:{ss}" } }),
    yAxis: axis({ type: "value", min: 0, axisLabel: { formatter: (value) => count(value) }, ...y }),
  };
}

const thinned = (points, most = 30) => points.filter((_, place) => (points.length - 1 - place) % Math.ceil(points.length / most) === 0).reverse();
