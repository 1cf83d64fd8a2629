// What a tab was asked: as a shared address has it, else as it was left, else what is worth a look when nothing was asked.
import { useEffect, useRef, useState } from "vl/lib/dom";
import { writeAddress } from "vl/lib/state";

const SETTLED_MS = 300;
const left = new Map();

/**
 * [asked, setAsked], kept for who comes back to the tab and written into the address. `read(state)` makes a whole question of what an address
 * holds, null where that is none; `first()` is the usual one; `inAddress` is as much of a question as goes into the address.
 *
 * @param {string} tab
 * @param {any} state
 * @param {{read: (state: any) => any, first: () => any, inAddress?: (asked: any) => any}} how
 */
export function useAsked(tab, state, { read, first, inAddress = (asked) => asked }) {
  const [asked, setAsked] = useState(() => (state && read(state)) ?? left.get(tab) ?? first());
  const isMounted = useRef(false);
  useEffect(() => {
    const found = isMounted.current && state && read(state);
    if (found) setAsked(found);
    isMounted.current = true;
  }, [state]);
  useEffect(() => {
    left.set(tab, asked);
    const later = setTimeout(() => writeAddress(tab, inAddress(asked)), SETTLED_MS);
    return () => clearTimeout(later);
  }, [asked]);
  return [asked, setAsked];
}
