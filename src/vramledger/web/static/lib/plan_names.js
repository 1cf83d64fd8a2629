// Short names for plans that stand beside each other: what their command lines do not have in common.
const LONGEST = 60;

/** lines: commands as the page shows them. Gives a name that a file can have for each, all of them other. */
export function planNames(lines) {
  const asked = lines.map(parts);
  const all = [...new Set(asked.flatMap((each) => [...each.keys()]))];
  const told = all.filter((key) => new Set(asked.map((each) => each.get(key) ?? null)).size > 1);
  const seen = new Map();
  return asked.map((each) => {
    const said = told.filter((key) => each.has(key)).map((key) => (PLAIN.has(key) ? each.get(key) : `${key} ${each.get(key)}`.trim()));
    const name = fileName(said.join(" ")) || "plan";
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    return times === 1 ? name : `${name}-${times}`;
  });
}

/** What needs no word before it: one knows a model, a device and an engine by their names. */
const PLAIN = new Set(["", "device", "engine"]);

/** A command line as a shell reads it: the model under "", options by their names. */
function parts(line) {
  const words = [...line.matchAll(/'((?:[^']|'"'"')*)'|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain).slice(2);
  const found = new Map();
  let name = "";
  for (const word of words) {
    if (word.startsWith("--")) {
      const [flag, value = ""] = word.slice(2).split("=");
      found.set(flag, value);
      name = value ? "" : flag;
    } else {
      found.set(name, name === "" ? word.replace(/^builtin:/, "") : word);
      name = "";
    }
  }
  return found;
}

const fileName = (text) => text.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[._-]+|[._-]+$/g, "").slice(0, LONGEST);
