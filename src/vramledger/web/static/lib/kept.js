// Answers put aside in one tab for another: {name, ask, answer}. They last as long as the page.
import { useEffect, useState } from "preact/hooks";

let kept = [];
const listeners = new Set();

export function keep(item) {
  kept = [...kept.filter((each) => each.name !== item.name), item].slice(-12);
  for (const told of listeners) told(kept);
}

export function forget(name) {
  kept = kept.filter((each) => each.name !== name);
  for (const told of listeners) told(kept);
}

export function useKept() {
  const [items, told] = useState(kept);
  useEffect(() => {
    listeners.add(told);
    return () => listeners.delete(told);
  }, []);
  return items;
}
