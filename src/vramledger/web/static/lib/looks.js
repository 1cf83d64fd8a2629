// The server's looks at what runs, kept for some while.
import { useEffect, useRef, useState } from "vl/lib/dom";
import { stream } from "vl/lib/api";
import { MOST_POINTS, pointOf, withRequests } from "vl/lib/history";

const NOTHING = { standing: "none", command: "", look: null, points: [], requests: new Map(), problem: "", away: {} };

/**
 * {looks, start, stop, forget}. looks: {standing: none | waiting | looking | ended, command, look, points, requests, problem, away};
 * `away` has since when an address does not answer. What was seen stays after the end.
 */
export function useLooks() {
  const [looks, setLooks] = useState(NOTHING);
  const ending = useRef(null);
  useEffect(() => () => ending.current?.abort(), []);
  const stop = () => ending.current?.abort();
  const start = async (asked) => {
    ending.current?.abort();
    const own = new AbortController();
    ending.current = own;
    setLooks({ ...NOTHING, standing: "waiting" });
    const change = (next) => own === ending.current && setLooks(next);
    try {
      for await (const line of stream("/api/live/watch", { body: asked, signal: own.signal })) {
        if ("command" in line) change((before) => ({ ...before, command: line.command }));
        else if ("ended" in line) change((before) => ({ ...before, standing: "ended", problem: line.ended.message }));
        else change((before) => seen(before, line));
      }
      change((before) => (before.standing === "ended" ? before : { ...before, standing: "ended", problem: "lost" }));
    } catch (problem) {
      change((before) => ({ ...before, standing: "ended", problem: problem.name === "AbortError" ? "" : problem.message }));
    }
  };
  return { looks, start, stop };
}

function seen(before, look) {
  const away = Object.fromEntries(Object.keys(look.problems).map((place) => [place, before.away[place] ?? look.at_s * 1000]));
  return {
    ...before, standing: "looking", look, away,
    points: [...before.points, pointOf(look)].slice(-MOST_POINTS),
    requests: withRequests(before.requests, look),
  };
}
