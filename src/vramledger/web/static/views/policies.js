// The same load under several policies: one picture of the pool, one of the first token's time, the figures in a table.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour, seriesColour } from "vl/lib/colours";
import { Problem, Table } from "vl/lib/parts";
import { count, number } from "vl/lib/units";
import { t } from "vl/lib/words";
import { Distribution } from "vl/lib/latency_chart";
import { ms, perSecond, share } from "vl/lib/load";
import { refusals } from "vl/views/simulate";

const DASHES = ["solid", "dashed", "dotted", [10, 4, 2, 4], [2, 6], [12, 6], [4, 2]];

/** `runs`: [{name, document, problem}]; a document is what `vramledger simulate --json` writes. */
export function View({ runs }) {
  const done = runs.filter((each) => each.document);
  if (!done.length) return html`${runs.map((each) => html`<${Problem} message=${each.problem && `${each.name}: ${each.problem}`} />`)}`;
  const best = Math.max(...done.map((each) => each.document.requests.goodput));
  const says = t("load.policies.says", { list: done.map((each) => `${each.name} ${share(each.document.requests.goodput)}`).join(", ") });
  return html`<section aria-label=${t("load.policies")}><h2>${t("load.policies")}</h2><p>${says}</p>
    ${runs.filter((each) => each.problem).map((each) => html`<${Problem} message=${`${each.name}: ${each.problem}`} />`)}
    <${Figures} runs=${done} best=${best} />
    <${Used} runs=${done} says=${says} />
    <${Distribution} caption=${t("load.policies.ttft")} says=${says} aims=${{ ...done[0].document.conditions.aims, tpot_ms: null, latency_ms: null }} curves=${done.map((each) => ({ name: each.name, percent: each.document.curves.percent, values: each.document.curves.ttft_ms }))} /></section>`;
}

function Figures({ runs, best }) {
  const isTold = runs.some((each) => each.document.requests.goodput < best);
  const names = [t("load.goodput"), t("load.good"), "TTFT p50", "TTFT p99", "TPOT p99", "latency p99", t("load.preemptions"), t("load.used"), t("load.hits"), t("load.waited"), t("load.refused.n")];
  const row = ({ name, document: found }) => {
    const all = found.requests;
    const { admission } = found;
    return [
      all.goodput === best && isTold ? html`${name} <span class="tag">${t("load.best")}</span>` : name, share(all.goodput), perSecond(all.good_per_s), ms(all.ttft_ms.p50), ms(all.ttft_ms.p99), ms(all.tpot_ms.p99), ms(all.latency_ms.p99),
      count(all.preemptions), share(found.pool.used_blocks.p95 / Math.max(found.pool.usable_blocks, 1)), share(all.hit_tokens / Math.max(all.prompt_tokens, 1)), admission ? count(admission.waited) : "–", admission ? refusals(admission) : "–",
    ];
  };
  return html`<${Table} label=${t("load.policies")} columns=${[t("load.policy"), ...names.map((name) => ({ name, number: true }))]} rows=${runs.map(row)} />`;
}

/** Blocks used by the first replica and requests waiting, each policy a line. */
function Used({ runs, says }) {
  const lines = runs.map(({ name, document: { samples } }, place) => {
    const own = samples.at_s.map((_, index) => index).filter((index) => samples.replica[index] === 0);
    const paint = seriesColour(place);
    const line = (values, grid) => ({
      type: "line", name, symbol: "none", sampling: "lttb", xAxisIndex: grid, yAxisIndex: grid, lineStyle: { width: 1.6, color: paint, type: DASHES[place % DASHES.length] }, itemStyle: { color: paint }, data: own.map((index) => [samples.at_s[index], values[index]]),
    });
    return [line(samples.used_blocks, 0), line(samples.waiting, 1)];
  });
  const end = Math.max(...runs.map((each) => each.document.samples.at_s.at(-1) ?? 1));
  const time = (more) => axis({ type: "value", min: 0, max: end, ...more, axisLabel: { hideOverlap: true, showMaxLabel: false, formatter: (value) => number(+value.toPrecision(6)), ...more.axisLabel } });
  const make = () => ({
    legend: { top: 0, type: "scroll", textStyle: { color: colour("ink") }, itemWidth: 30, data: runs.map((each) => each.name) },
    axisPointer: { link: [{ xAxisIndex: "all" }] },
    tooltip: tooltip({ trigger: "axis", formatter: (points) => points.map((each) => `<div>${safe(each.seriesName)}: ${safe(count(each.value[1]))}</div>`).join("") }),
    grid: [{ left: 58, right: 14, top: 44, height: 170 }, { left: 58, right: 14, top: 250, height: 92 }],
    xAxis: [time({ gridIndex: 0, axisLabel: { show: false } }), time({ gridIndex: 1, name: t("load.seconds"), nameLocation: "middle", nameGap: 28 })],
    yAxis: [axis({ type: "value", gridIndex: 0, min: 0, max: runs[0].document.pool.usable_blocks, axisLabel: { showMaxLabel: false } }), axis({ type: "value", gridIndex: 1, min: 0, minInterval: 1, splitNumber: 3 })],
    series: lines.flat(),
  });
  const columns = [t("load.policy"), ...["p50", "p95", t("load.max"), `${t("load.waiting")}, ${t("load.max")}`].map((name) => ({ name, number: true }))];
  return html`<${Chart} caption=${t("load.policies.used")} make=${make} deps=${[runs]} says=${says} height=${390} columns=${columns}
    rows=${runs.map(({ name, document: { pool } }) => [name, count(pool.used_blocks.p50), count(pool.used_blocks.p95), count(pool.used_blocks.max), count(pool.waiting.max)])} />`;
}
