// One simulated run: how well it was served, the pool over time, latencies, and the ways to run out of memory.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip } from "vl/lib/chart";
import { colour } from "vl/lib/colours";
import { Facts, Table } from "vl/lib/parts";
import { bytes, count, number, seconds } from "vl/lib/units";
import { t } from "vl/lib/words";
import { Distribution } from "vl/lib/latency_chart";
import { Conditions, Headline, Notes, aimsOf, ms, perSecond, share } from "vl/lib/load";
import { Pool } from "vl/lib/pool_chart";

const STATES = ["finished", "cancelled", "expired", "rejected", "never_fits", "livelocked", "unfinished", "failed"];
const TONES = { clear: "good", close: "unsure", threatens: "bad", untold: "plain-tone" };

/** document: what `vramledger simulate --json` writes. */
export function View({ document: found }) {
  const aims = aimsOf(found.conditions.aims);
  const tone = !aims.length ? "plain-tone" : found.verdict.holds ? "good" : "bad";
  const word = t(!aims.length ? "load.unjudged" : found.verdict.holds ? "load.served" : "load.missed");
  return html`<${Headline} word=${word} tone=${tone} said=${found.verdict.summary}>${found.never_served.length > 0 && html`<ul>${found.never_served.map((each) => html`<li>${each}</li>`)}</ul>`}<${Notes} notes=${found.notes} /><//>
    <${Figures} found=${found} tone=${tone} /><${Pool} samples=${found.samples} pool=${found.pool} counters=${found.counters} />
    <${Latencies} found=${found} /><${Findings} found=${found} /><${Groups} found=${found} /><${ToolWaits} rows=${found.tool_waits} /><${Conditions} conditions=${found.conditions} />`;
}

function Figures({ found, tone }) {
  const all = found.requests;
  const { pool, counters, admission } = found;
  const computed = counters.reduce((sum, each) => sum + each.computed_tokens, 0);
  const states = STATES.filter((name) => all[name] > 0).map((name) => `${count(all[name])} ${t(`load.state.${name}`)}`).join(", ");
  return html`<${Facts} label=${t("load.became")} items=${[
    [t("load.goodput"), share(all.goodput), t("load.ofwhich", { good: count(all.good), all: count(all.offered) }), tone],
    [t("load.good"), perSecond(all.good_per_s), t("load.offered", { n: count(all.offered), rate: perSecond(all.offered_per_s) })],
    ["TTFT p99", ms(all.ttft_ms.p99), `p50 ${ms(all.ttft_ms.p50)}`],
    ["TPOT p99", ms(all.tpot_ms.p99), `p50 ${ms(all.tpot_ms.p50)}`],
    ["Latency p99", ms(all.latency_ms.p99), `p50 ${ms(all.latency_ms.p50)}`],
    [t("load.used"), share(pool.used_blocks.p95 / Math.max(pool.usable_blocks, 1)), t("load.full", { share: share(pool.full_share) })],
    [t("load.preemptions"), count(all.preemptions), t("load.preempted", { n: count(all.preempted_requests), share: share(all.recomputed_tokens / Math.max(computed, 1)) })],
    [t("load.hits"), share(all.hit_tokens / Math.max(all.prompt_tokens, 1)), t("load.hits.said", { n: count(all.prompt_tokens) })],
    [t("load.throughput"), t("load.tokens_s", { n: count(all.output_tokens_per_s) }), t("load.over", { time: seconds(all.seconds) })],
    [t("load.queue"), `p99 ${ms(all.queue_ms.p99)}`, t("load.longest", { n: count(pool.waiting.max) })],
  ]} />
  <p class="dim">${t("load.became")}: ${states}.</p>
  ${admission && html`<p><b>${t("load.admission")}</b>: ${t("load.admission.said", { policy: admission.policy, at_once: count(admission.let_in_at_once), waited: count(admission.waited), refused: refusals(admission), reservation: reservation(admission.reservation) })}</p>`}`;
}

/** How much output room is reserved, as a document says it: text, or a value of several fields. */
const reservation = (found) => (typeof found === "object" && found !== null ? Object.entries(found).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${value}`).join(", ") : String(found));

/** "0", or "12 (10 ttft, 2 room)". */
export function refusals(admission) {
  const each = Object.entries(admission.refused).filter(([, value]) => value > 0);
  const all = each.reduce((sum, [, value]) => sum + value, 0);
  return all ? `${count(all)} (${each.map(([name, value]) => `${count(value)} ${name}`).join(", ")})` : "0";
}

function Latencies({ found }) {
  const all = found.requests;
  const { aims } = found.conditions;
  const names = [["TTFT", all.ttft_ms, aims.ttft_ms, all.missed_ttft], ["TPOT", all.tpot_ms, aims.tpot_ms, all.missed_tpot], ["latency", all.latency_ms, aims.latency_ms, all.missed_latency], ["queue", all.queue_ms, null, null]];
  const { curves } = found;
  const says = t("load.curve.says", { ttft50: ms(all.ttft_ms.p50), ttft99: ms(all.ttft_ms.p99), tpot50: ms(all.tpot_ms.p50), tpot99: ms(all.tpot_ms.p99), lat50: ms(all.latency_ms.p50), lat99: ms(all.latency_ms.p99) });
  return html`<section aria-label=${t("load.latencies")}><h2>${t("load.latencies")}</h2>
    <${Table} label=${t("load.latencies")} columns=${[t("load.quantity"), ...["p50", "p90", "p95", "p99", t("load.max"), t("load.mean"), t("load.aim"), t("load.missed.n")].map((name) => ({ name, number: true }))]}
      rows=${names.map(([name, values, aim, missed]) => [name, ...["p50", "p90", "p95", "p99", "max", "mean"].map((key) => (values.count ? ms(values[key]) : "–")), aim === null ? "–" : ms(aim), aim === null ? "–" : count(missed)])} />
    ${curves && html`<${Distribution} caption=${t("load.curve")} says=${says} aims=${aims} curves=${names.map(([name]) => ({ name, percent: curves.percent, values: curves[`${name.toLowerCase()}_ms`] }))} />`}</section>`;
}

function Findings({ found }) {
  return html`<section aria-label=${t("load.findings")}><h2>${t("load.findings")}</h2><ul class="findings">${found.findings.map((each) => html`<li class=${TONES[each.level] ?? ""} key=${each.shortage}>
    <b><span class="word">${t(`load.level.${each.level}`)}</span> ${each.shortage}</b>${each.at_s !== null && html` <span class="dim">${t("load.since", { time: seconds(each.at_s) })}</span>`}<p>${each.summary}</p></li>`)}</ul></section>`;
}

function Groups({ found }) {
  if (!found.groups.length) return null;
  const columns = [t("load.group"), ...[t("load.goodput"), "TTFT p50", "TTFT p99", "TPOT p99", "latency p99", t("load.preemptions")].map((name) => ({ name, number: true }))];
  const row = (each) => [each.name, share(each.goodput), ms(each.ttft_ms.p50), ms(each.ttft_ms.p99), ms(each.tpot_ms.p99), ms(each.latency_ms.p99), count(each.preemptions)];
  return html`<section aria-label=${t("load.groups")}><h2>${t("load.groups")}</h2><${Table} label=${t("load.groups")} columns=${columns} rows=${found.groups.map(row)} /></section>`;
}

const millions = (value) => value / 1e6;
const nameOf = (row) => (row.patience_s === null ? row.policy : `${row.policy}, ${seconds(row.patience_s)}`);

/** Ways to treat KV between turns, the least wasteful first. */
function ToolWaits({ rows: told }) {
  if (!told?.length) return null;
  const rows = [...told].sort((a, b) => a.waste_token_s - b.waste_token_s);
  const best = rows.find((row) => !row.policy.includes("hindsight")) ?? rows[0];
  const says = t("load.toolwaits.says", { policy: nameOf(best), waste: number(millions(best.waste_token_s)), waits: count(best.waits) });
  const shown = [...rows].reverse();
  const left = Math.min(230, Math.round(document.documentElement.clientWidth * 0.42));
  const bar = (key, name, paint) => ({ type: "bar", stack: "waste", name, barMaxWidth: 16, itemStyle: { color: paint }, data: shown.map((row) => millions(row[key])) });
  const make = () => ({
    legend: { top: 0, type: "scroll", textStyle: { color: colour("ink") } },
    grid: { left, right: 40, top: 34, bottom: 44 },
    tooltip: tooltip({ trigger: "axis", axisPointer: { type: "shadow" }, formatter: (points) => `<b>${safe(points[0].name)}</b>${points.map((each) => `<div>${safe(each.seriesName)}: ${safe(number(each.value))}</div>`).join("")}` }),
    xAxis: axis({ type: "value", name: t("load.waste"), nameLocation: "middle", nameGap: 28, axisLabel: { hideOverlap: true } }),
    yAxis: axis({ type: "category", data: shown.map(nameOf), axisLabel: { width: left - 12, overflow: "truncate", interval: 0, fontSize: 11 } }),
    series: [bar("idle_token_s", t("load.idle"), colour("s1")), bar("stalled_token_s", t("load.stalled"), colour("s2"))],
  });
  const columns = [t("load.policy"), ...[t("load.kept"), t("load.waste"), t("load.idle"), t("load.stalled"), t("load.link"), t("load.recomputed")].map((name) => ({ name, number: true }))];
  const row = (each) => [nameOf(each), share(each.found_share), number(millions(each.waste_token_s)), number(millions(each.idle_token_s)), number(millions(each.stalled_token_s)), bytes(each.link_bytes), count(each.recomputed_tokens)];
  return html`<section aria-label=${t("load.toolwaits")}><h2>${t("load.toolwaits")}</h2><p>${says}</p>
    <${Chart} make=${make} deps=${[told]} says=${says} height=${90 + rows.length * 24} columns=${columns} rows=${rows.map(row)} /></section>`;
}
