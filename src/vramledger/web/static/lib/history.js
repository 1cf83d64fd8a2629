// Looks at what runs, as numbers over time. A look is what one line of `vramledger watch --json` says.
export const MOST_POINTS = 7200;
const MOST_REQUESTS = 500;

/** The numbers of one look; null is what was not told. Of an engine that is not asked itself its word to the gateway goes. */
export function pointOf(look) {
  const { engine, gateway } = look;
  const instances = gateway?.instances ?? [];
  const pool = engine ?? summed(instances);
  const rest = pool.total_blocks === null || pool.used_blocks === null ? null : Math.max(0, pool.total_blocks - pool.used_blocks);
  const sample = (name) => {
    const found = look.samples.filter((each) => each.name === name);
    return found.length ? found.reduce((sum, each) => sum + each.value, 0) : null;
  };
  return {
    at: look.at_s * 1000,
    block: pool.block_size, total: pool.total_blocks, used: pool.used_blocks, free: rest,
    cached: pool.cached_blocks === null || rest === null ? pool.cached_blocks : Math.min(pool.cached_blocks, rest),
    running: pool.running_requests, waiting: pool.waiting_requests,
    preempted: engine ? engine.totals.total_preempted_requests ?? null : sumOf(instances, "total_preempted_requests"),
    generated: engine?.totals.total_generated_tokens ?? null,
    queued: gateway ? gateway.queue.requests : null,
    reserved: sumOf(instances, "reserved_blocks"), limit: sumOf(instances, "limit_blocks"),
    deviceFree: sample("device_free_bytes"), deviceTotal: sample("device_total_bytes"), resident: sample("rss_bytes"),
    processes: look.samples.filter((each) => each.name === "rss_bytes").length,
  };
}

/** How much a counter grew over the points; a fall is a new start. null where it was never told. */
export function grown(points, name) {
  let before = null;
  let sum = null;
  for (const point of points) {
    const now = point[name];
    if (now === null) continue;
    sum = (sum ?? 0) + (before === null ? 0 : Math.max(0, now < before ? now : now - before));
    before = now;
  }
  return sum;
}

/** A counter's growth a second over the last `seconds`; null where it was not told twice. */
export function rate(points, name, seconds) {
  const last = points[points.length - 1];
  if (!last || last[name] === null) return null;
  const told = points.filter((point) => point[name] !== null && point.at >= last.at - seconds * 1000);
  return told.length < 2 || told[0].at === last.at ? null : (grown(told, name) / (last.at - told[0].at)) * 1000;
}

/** Requests by number, the newest told last; `requests` is not changed. A gateway that was started anew counts from 1 again. */
export function withRequests(requests, look) {
  const news = look.requests;
  if (!news.length) return requests;
  const isNew = news.some((each) => requests.has(each.number) && each.came_ms > requests.get(each.number).came_ms + 60_000);
  const all = new Map(isNew ? [] : requests);
  for (const each of news) all.set(each.number, each);
  return new Map([...all].sort(([one], [other]) => one - other).slice(-MOST_REQUESTS));
}

const sumOf = (all, name) => {
  const told = all.map((each) => each[name]).filter((value) => value !== null);
  return told.length ? told.reduce((sum, value) => sum + value, 0) : null;
};

function summed(instances) {
  const names = ["total_blocks", "used_blocks", "cached_blocks", "running_requests", "waiting_requests"];
  const sizes = new Set(instances.map((each) => each.block_size).filter((size) => size !== null));
  return { block_size: sizes.size === 1 ? [...sizes][0] : null, ...Object.fromEntries(names.map((name) => [name, sumOf(instances, name)])) };
}
