// The memory of ranks that are alike: a bar for each phase, stacked by owner, with what the device and the engine's budget hold across.
import { html } from "vl/lib/dom";
import { Chart, axis, safe, tooltip, whiskers } from "vl/lib/chart";
import { OWNERS, PHASES, colour, ownerColour } from "vl/lib/colours";
import { GIB, bytes, gib, range } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/plan";

addWords(words);

/** "rank 0", "ranks 0-3, 8"; of llama.cpp devices. */
export function rankName(ranks) {
  const runs = [];
  for (const each of ranks) {
    const last = runs[runs.length - 1];
    if (last && each === last[1] + 1) last[1] = each;
    else runs.push([each, each]);
  }
  const said = runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
  return t(ranks.length === 1 ? "plan.rank" : "plan.ranks", { ranks: said });
}

/** Owners that hold anything in `phase`, in the order of the stack from below: [{owner, bytes, entries}]. */
function owners(rank, phase) {
  return OWNERS.map((owner) => {
    const entries = rank.entries.filter((each) => each.owner === owner && each.phases.includes(phase));
    return { owner, entries, bytes: entries.reduce((sum, each) => sum + each.bytes.expected, 0) };
  }).filter((each) => each.bytes > 0);
}

/** The largest number of GiB that a chart of these ranks has to show, so that several share one scale. */
export const scaleOf = (ranks) => Math.max(...ranks.map((rank) => gib(Math.max(rank.device_total_bytes, ...rank.peaks.map((peak) => peak.occupied.high))))) * 1.04;

/** What a rank holds at most in a phase, in the one that binds where none is named. */
export const peakOf = (rank, phase = rank.binding_phase) => rank.peaks.find((peak) => peak.phase === phase);

/** `rank`: of a plan's document; `budget`: bytes; `top`: GiB at the top of the axis (scaleOf). */
export function Memory({ rank, budget, top = scaleOf([rank]), caption }) {
  const phases = PHASES.filter((phase) => peakOf(rank, phase));
  const binding = rank.binding_phase;
  const present = OWNERS.filter((owner) => rank.entries.some((each) => each.owner === owner && each.phases.length));
  const says = t("plan.says", {
    rank: rankName(rank.ranks), phase: binding, peak: range(peakOf(rank, binding).occupied), device: bytes(rank.device_total_bytes), budget: bytes(budget),
    owners: owners(rank, binding).map((each) => `${each.owner} ${bytes(each.bytes)}`).join(", "),
  });
  const make = () => ({
    animation: false,
    grid: { left: 44, right: 54, top: 26, bottom: 26 },
    tooltip: tooltip({ trigger: "item", formatter: ({ seriesName, name }) => told(rank, seriesName, name) }),
    xAxis: axis({ type: "category", data: phases, axisTick: { show: false }, axisLabel: { interval: 0, fontSize: 11, hideOverlap: false } }),
    yAxis: axis({ type: "value", name: "GiB", max: top, min: 0, axisLabel: { showMaxLabel: false }, nameGap: 10, nameTextStyle: { align: "right" } }),
    series: [
      ...present.map((owner) => ({
        type: "bar", name: owner, stack: "memory", barMaxWidth: 110, barCategoryGap: "24%",
        itemStyle: { color: ownerColour(owner), borderColor: colour("paper"), borderWidth: 0.6 },
        emphasis: { itemStyle: { borderColor: colour("ink"), borderWidth: 1.5 } },
        data: phases.map((phase) => gib(owners(rank, phase).find((each) => each.owner === owner)?.bytes ?? 0)),
      })),
      whiskers(phases.map((phase, place) => [place, gib(peakOf(rank, phase).occupied.low), gib(peakOf(rank, phase).occupied.high)])),
      lines(rank, budget),
    ],
  });
  return html`<div class="memory"><${Chart} make=${make} deps=${[rank, budget, top]} says=${says} height=${300} caption=${caption}
      columns=${[t("plan.owner"), ...phases.map((name) => ({ name, number: true }))]} rows=${numbers(rank, phases, present)} />
    <${Legend} rank=${rank} budget=${budget} /></div>`;
}

function lines(rank, budget) {
  const line = (value, name, type, width) => ({
    yAxis: gib(value), name, lineStyle: { color: colour("ink"), type, width },
    label: { formatter: name, position: "end", color: colour("ink"), fontSize: 11, verticalAlign: name === t("plan.device") ? "bottom" : "top", offset: [0, name === t("plan.device") ? 3 : -3] },
  });
  return {
    type: "line", name: "lines", data: [], silent: true,
    markLine: { silent: true, symbol: "none", animation: false, data: [line(rank.device_total_bytes, t("plan.device"), "solid", 1.5), line(budget, t("plan.budget"), "dashed", 1.2)] },
  };
}

function told(rank, owner, phase) {
  const found = owners(rank, phase).find((each) => each.owner === owner);
  if (!found) return "";
  const rows = found.entries.filter((each) => each.bytes.high > 0)
    .map((each) => `<div>${safe(each.name)}: ${safe(range(each.bytes))} <i>${safe(t(`evidence.${each.evidence.kind}`))}</i></div>`);
  return `<b>${safe(owner)} · ${safe(phase)}: ${safe(bytes(found.bytes))}</b>${rows.join("")}`;
}

function numbers(rank, phases, present) {
  const held = present.map((owner) => [owner, ...phases.map((phase) => bytes(owners(rank, phase).find((each) => each.owner === owner)?.bytes ?? 0))]);
  return [...held, [t("plan.sum"), ...phases.map((phase) => range(peakOf(rank, phase).occupied))]];
}

/** One unit for figures that are compared at a glance; what is too small for it is in the ledger. */
const inGib = (size) => (size > 0 && size < GIB / 200 ? "<0.01 GiB" : `${(size / GIB).toFixed(2)} GiB`);

/** What stands in the bar of the phase that binds, from its top to its foot. */
function Legend({ rank, budget }) {
  const held = owners(rank, rank.binding_phase).reverse();
  return html`<div class="legend"><p class="dim">${t("plan.binds", { phase: rank.binding_phase })}</p><table><tbody>
    <tr><th scope="row"><span class="line" aria-hidden="true"></span>${t("plan.device")}</th><td class="n">${bytes(rank.device_total_bytes)}</td></tr>
    <tr><th scope="row"><span class="line dashed" aria-hidden="true"></span>${t("plan.budget")}</th><td class="n">${bytes(budget)}</td></tr>
    <tr class="sum"><th scope="row"><span class="whisker" aria-hidden="true"></span>${t("plan.peak")}</th><td class="n">${bytes(peakOf(rank, rank.binding_phase).occupied.expected)}</td></tr>
    ${held.map((each) => html`<tr key=${each.owner}><th scope="row"><span class="swatch" style=${`background:var(--${each.owner.replace(/_/g, "-")})`} aria-hidden="true"></span>${each.owner}</th><td class="n">${inGib(each.bytes)}</td></tr>`)}
  </tbody></table></div>`;
}
