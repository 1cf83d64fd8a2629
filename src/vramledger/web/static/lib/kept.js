// Answers put aside in one tab for another: {name, ask, answer}. They last as long as the page.
import { useEffect, useState } from "preact/hooks";

let kept = [];
const listeners = new Set();

/** The same question is kept once; another with the same name gets a number. */
export function keep(item) {
  const others = kept.filter((each) => each.answer.command !== item.answer.command);
  const names = new Set(others.map((each) => each.name));
  let name = item.name;
  for (let turn = 2; names.has(name); turn++) name = `${item.name} (${turn})`;
  kept = [...others, { ...item, name }].slice(-12);
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
