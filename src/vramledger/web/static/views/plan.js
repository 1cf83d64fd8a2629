// A plan: its ledgers, its pool, its verdict. Shows what it is given and asks nothing.
import { html, useEffect, useMemo, useState } from "vl/lib/dom";
import { Ledger } from "vl/lib/ledger";
import { Memory, peakOf, rankName, scaleOf } from "vl/lib/memory";
import { Command, Evidence, Facts, Table, Verdict } from "vl/lib/parts";
import { bytes, count, number, range } from "vl/lib/units";
import { addWords, currentLanguage, t } from "vl/lib/words";
import words from "vl/words/plan";

addWords(words);

/** document: what `vramledger plan --json` writes; `beside` stands after the chart. */
export function View({ document: plan, beside }) {
  const { inputs } = plan;
  const top = scaleOf(plan.ranks);
  const many = plan.ranks.length > 1;
  return html`<h1 class="about">${inputs.model}</h1>
    <p class="dim about">${[inputs.architecture, inputs.quantization, `${inputs.engine} ${inputs.engine_version}`, `${inputs.device} ${bytes(inputs.device_total_bytes)}`,
      `tp ${inputs.tp} pp ${inputs.pp} dp ${inputs.dp} ep ${inputs.ep}`].filter(Boolean).join(" · ")}</p>
    <div class="verdict-facts"><${Verdict} verdict=${plan.verdict} /><${Head} plan=${plan} /></div>
    <h2>${t("plan.memory")}</h2>
    <div class=${many ? "pictures" : ""}>${plan.ranks.map((rank) => html`<${Memory} key=${rank.ranks.join()} rank=${rank} budget=${plan.budget_bytes} top=${top} caption=${many ? rankName(rank.ranks) : ""} />`)}</div>
    ${beside}
    ${plan.start && html`<${Start} start=${plan.start} engine=${inputs.engine} />`}
    <${Details} plan=${plan} />`;
}

/** What stands below the chart. It comes a moment after it, so that a moved slider moves the chart at once. */
function Details({ plan }) {
  const [shown, setShown] = useState(plan);
  const language = currentLanguage();
  useEffect(() => {
    const later = setTimeout(() => setShown(plan), 0);
    return () => clearTimeout(later);
  }, [plan]);
  return useMemo(() => details(shown), [shown, language]);
}

function details(plan) {
  const { inputs, kv_pool: pool } = plan;
  return html`${plan.ranks.length === 1 ? html`<${Rank} rank=${plan.ranks[0]} />` : html`<h2>${t("plan.ledgers")}</h2>${plan.ranks.map((rank) => html`<${Folded} key=${rank.ranks.join()} rank=${rank} isFirst=${rank === tightest(plan)} />`)}`}
    ${pool && html`<${Pool} pool=${pool} />`}
    ${plan.host.length > 0 && html`<h2>${t("plan.host")}</h2><p class="dim">${t("plan.host.said")}</p><${Ledger} entries=${plan.host} label=${t("plan.host")} />`}
    ${plan.printed.length > 0 && html`<h2>${t("plan.printed", { engine: `${inputs.engine} ${inputs.engine_version}` })}</h2><pre tabindex="0" aria-label=${t("plan.printed", { engine: inputs.engine })}>${plan.printed.join("\n")}</pre>`}
    ${plan.notes.length > 0 && html`<h2>${t("notes")}</h2><ul>${plan.notes.map((each) => html`<li>${each}</li>`)}</ul>`}`;
}

function Start({ start, engine }) {
  return html`<${Command} line=${start.command} label=${t("plan.start", { engine })} kind="starts" />
    ${start.left_out.length > 0 && html`<p class="dim">${t("plan.left_out")}</p><ul class="dim">${start.left_out.map((each) => html`<li>${each}</li>`)}</ul>`}`;
}

function Head({ plan }) {
  const worst = tightest(plan);
  const peak = peakOf(worst).occupied;
  const pool = plan.kv_pool;
  const facts = [
    pool && [t("plan.tokens"), count(pool.tokens.expected), spread(pool.tokens, count)],
    pool && [t("plan.concurrency"), number(pool.max_concurrency.expected), t("plan.concurrency.said", { context: count(pool.context_len) })],
    pool && [t("plan.longest"), count(pool.longest_context.expected), t("plan.tokens.unit")],
    [t("plan.peak.fact"), bytes(peak.expected), t("plan.peak.said", { phase: worst.binding_phase, device: bytes(worst.device_total_bytes) })],
    [t("plan.budget.fact"), bytes(plan.budget_bytes), t("plan.budget.said", { inside: bytes(inside(worst)) })],
    [t("plan.left"), bytes(left(worst)), left(worst) < 0 ? t("plan.left.short") : t("plan.left.said", { low: bytes(worst.device_total_bytes - peak.high) })],
  ];
  return html`<${Facts} kind="" items=${facts} />`;
}

const tightest = (plan) => plan.ranks.reduce((most, rank) => (left(rank) < left(most) ? rank : most));
const inside = (rank) => rank.entries.filter((each) => each.inside_budget && each.phases.includes(rank.binding_phase)).reduce((sum, each) => sum + each.bytes.expected, 0);
const left = (rank) => rank.device_total_bytes - peakOf(rank).occupied.expected;
const spread = (interval, shown) => (interval.low === interval.high ? t("plan.exact") : t("plan.spread", { low: shown(interval.low), high: shown(interval.high) }));

/** One of several ledgers: the tightest is open, and what is not open is not made. */
function Folded({ rank, isFirst }) {
  const [isOpen, setOpen] = useState(isFirst);
  const peak = peakOf(rank);
  return html`<details open=${isOpen} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>${t("plan.ledger", { rank: rankName(rank.ranks) })} <span class="dim">${t("plan.ledger.peak", { bytes: bytes(peak.occupied.expected), phase: peak.phase })}</span></summary>
    ${isOpen && html`<${Entries} rank=${rank} />`}</details>`;
}

const Rank = ({ rank }) => html`<section><h2>${t("plan.ledger", { rank: rankName(rank.ranks) })}</h2><${Entries} rank=${rank} /></section>`;

function Entries({ rank }) {
  const { weights } = rank;
  return html`<${Ledger} entries=${rank.entries} label=${t("plan.ledger", { rank: rankName(rank.ranks) })} />
    <p>${t("plan.weights", { disk: bytes(weights.disk_bytes), host: range(weights.host_peak_bytes), device: range(weights.device_bytes) })} <${Evidence} evidence=${weights.host_evidence} interval=${weights.host_peak_bytes} /></p>`;
}

function Pool({ pool }) {
  const facts = [
    [t("plan.pool.bytes"), bytes(pool.bytes.expected), [pool.dtype, spread(pool.bytes, bytes)].join(", ")],
    [t("plan.blocks"), count(pool.num_blocks.expected), [spread(pool.num_blocks, count), t("plan.block.said", { tokens: count(pool.block_size), bytes: count(pool.bytes_per_block) })].join(", ")],
    [t("plan.token"), `${count(pool.bytes_per_token)} B`, pool.state_bytes_per_sequence ? t("plan.state", { bytes: bytes(pool.state_bytes_per_sequence) }) : ""],
    [t("plan.reserved"), bytes(pool.admission.bytes_per_request), t("plan.reserved.said", { context: count(pool.context_len), requests: range(pool.admission.concurrency, number) })],
    [t("plan.steady"), bytes(pool.steady.bytes_per_request), t("plan.steady.said", { requests: range(pool.steady.concurrency, number) })],
  ];
  const columns = [t("plan.group"), ...["plan.layers", "plan.block", "plan.page", "plan.perRequest", "plan.window"].map((key) => ({ name: t(key), number: true }))];
  const rows = pool.groups.map((group) => [
    group.parts.length > 1 ? group.parts.map((part) => `${part.kind} ×${part.num_layers}`).join(" + ") : group.kind, count(group.num_layers) + (group.padding_layers ? ` + ${group.padding_layers}` : ""), count(group.block_size),
    count(group.page_bytes), count(group.blocks_per_request), group.window_tokens ? count(group.window_tokens) : "–",
  ]);
  return html`<section><h2>${t("plan.pool")}</h2><${Facts} kind="" items=${facts} />
    <${Table} columns=${columns} rows=${rows} label=${t("plan.groups")} /><p class="dim">${pool.tokens_rule}</p></section>`;
}
