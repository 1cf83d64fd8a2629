// The server's looks at what runs, kept for some while; they go on while another tab is shown.
import { useEffect, useState } from "vl/lib/dom";
import { stream } from "vl/lib/api";
import { MOST_POINTS, pointOf, withRequests } from "vl/lib/history";

/**
 * standing: none, waiting, looking or ended; `asked` is what was asked for, `away` has since when an address does not answer. What was seen
 * stays after the end.
 */
const NOTHING = { standing: "none", asked: null, command: "", look: null, points: [], requests: new Map(), problem: "", away: {} };
const listeners = new Set();
let looks = NOTHING;
let ending = null;

/** The looks as they come. */
export function useLooks() {
  const [found, told] = useState(looks);
  useEffect(() => {
    listeners.add(told);
    told(looks);
    return () => listeners.delete(told);
  }, []);
  return found;
}

export const stopLooking = () => ending?.abort();

/** Look at {engine, gateway, interval_s} instead of what was looked at before. */
export async function look(asked) {
  ending?.abort();
  const own = new AbortController();
  ending = own;
  const change = (more) => {
    if (own !== ending) return;
    looks = { ...looks, ...more };
    for (const told of listeners) told(looks);
  };
  change({ ...NOTHING, standing: "waiting", asked });
  try {
    for await (const line of stream("/api/live/watch", { body: asked, signal: own.signal })) {
      if ("command" in line) change({ command: line.command });
      else if ("ended" in line) change({ standing: "ended", problem: line.ended.message });
      else change(seen(line));
    }
    if (looks.standing !== "ended") change({ standing: "ended", problem: "lost" });
  } catch (problem) {
    change({ standing: "ended", problem: problem.name === "AbortError" ? "" : problem.message });
  }
}

function seen(found) {
  const at = found.at_s * 1000;
  return {
    standing: "looking", look: found,
    away: Object.fromEntries(Object.keys(found.problems).map((place) => [place, looks.away[place] ?? at])),
    points: [...looks.points, pointOf(found)].slice(-MOST_POINTS),
    requests: withRequests(looks.requests, found),
  };
}
