"""How the page on an experiment looks: colours by name for light and dark, a grid that folds up on a phone, tables that scroll by themselves."""

STYLE = """
:root{color-scheme:light dark;--paper:#ffffff;--card:#f6f7f9;--ink:#1d232b;--dim:#5b6673;--grid:#e3e6ea;--edge:#d5dae0;--load:#eef2f7;
--measured:#1f5fa8;--forecast:#b4540a;--aim:#a3263a;--good:#1a7446;--unsure:#8a6100;--bad:#b3261e;--s1:#1f5fa8;--s2:#b4540a;--s3:#6d4aa5;
--weights:#4c78a8;--adapters:#8fb3d9;--kv-cache:#3d9a6a;--activation:#e0a526;--workspace:#b279a2;--collectives:#2f9ea6;--graph-pool:#d6616b;
--runtime-context:#9c755f;--allocator:#8a949e;--headroom:#cfd6dd}
@media (prefers-color-scheme:dark){:root{--paper:#14181d;--card:#1c2229;--ink:#e6eaef;--dim:#9eabb8;--grid:#2b333c;--edge:#38424d;
--load:#1e2630;--measured:#74aef5;--forecast:#f2a35e;--aim:#f28b9b;--good:#5cc98f;--unsure:#e0b64b;--bad:#ff8a80;--s1:#74aef5;--s2:#f2a35e;
--s3:#b79bf0;--weights:#6f9dd0;--adapters:#a9c7e8;--kv-cache:#56b885;--activation:#e9bb55;--workspace:#c894ba;--collectives:#4fbcc4;
--graph-pool:#e58088;--runtime-context:#b8947f;--allocator:#8f9aa5;--headroom:#47525e}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.05rem;font-weight:600;margin:0;color:var(--dim)}
h2{font-size:1.3rem;margin:44px 0 4px;line-height:1.25}
h3{font-size:1rem;margin:0;line-height:1.3}
p{margin:6px 0;max-width:78ch;overflow-wrap:anywhere}
.dim,figcaption p,.note{color:var(--dim);font-size:.9rem}
.verdict{border-left:8px solid var(--tone);background:var(--card);border-radius:6px;padding:16px 20px;margin:14px 0 18px}
.verdict .word{color:var(--tone);font-weight:700;font-size:.95rem;text-transform:uppercase;letter-spacing:.04em}
.verdict p.said{font-size:1.3rem;line-height:1.35;margin:4px 0;max-width:70ch}
.verdict ul{margin:8px 0 0;padding-left:20px}
.good{--tone:var(--good)}.bad{--tone:var(--bad)}.unsure{--tone:var(--unsure)}.plain{--tone:var(--dim)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:10px;margin:0}
.facts div{background:var(--card);border-radius:6px;padding:10px 14px;border-top:3px solid var(--tone,var(--edge))}
.facts dt{color:var(--dim);font-size:.85rem}
.facts dd{margin:0}
.facts .value{font-size:1.3rem;font-weight:650;line-height:1.25;overflow-wrap:anywhere}
.facts .small{color:var(--dim);font-size:.82rem;line-height:1.35}
.under{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:0 40px}
.under>ul{margin:10px 0;padding-left:20px;font-size:.95rem}
.conditions{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 18px;margin:10px 0;font-size:.95rem}
.conditions dt{color:var(--dim)}
.conditions dd{margin:0;overflow-wrap:anywhere}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:28px 24px;margin-top:14px}
figure{margin:14px 0 0;min-width:0}
.pictures figure{margin:0;display:flex;flex-direction:column}
.pictures figure>svg{margin-top:auto}
svg{display:block;width:100%;height:auto;font-family:inherit;font-variant-numeric:tabular-nums}
.narrow{display:none}
.key{display:flex;flex-wrap:wrap;gap:2px 16px;list-style:none;margin:4px 0 6px;padding:0;font-size:.83rem;color:var(--dim)}
.key li{display:flex;align-items:center;gap:6px;min-width:0;overflow-wrap:anywhere}
.key svg{width:22px;height:12px;flex:none}
.scroll{overflow-x:auto;margin:10px 0}
.scroll:focus-visible{outline:2px solid var(--measured);outline-offset:2px}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;line-height:1.4}
caption{text-align:left;color:var(--dim);padding-bottom:4px}
th,td{text-align:right;padding:5px 9px;border-bottom:1px solid var(--grid);white-space:nowrap;vertical-align:top}
th{white-space:normal;vertical-align:bottom;min-width:3.4em;color:var(--dim);font-weight:600;border-bottom-color:var(--edge)}
th.w,td.w{text-align:left}
th:first-child,td:first-child{position:sticky;left:0;background:var(--paper)}
td.long{white-space:normal;min-width:26ch;max-width:60ch;overflow-wrap:anywhere}
tr.good td:first-child,tr.bad td:first-child,tr.unsure td:first-child,tr.plain td:first-child{box-shadow:inset 4px 0 0 var(--tone)}
td .mark{color:var(--tone);font-weight:650}
details{margin:10px 0}
summary{cursor:pointer;color:var(--measured)}
code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.9em;overflow-wrap:anywhere}
footer{margin-top:48px;border-top:1px solid var(--edge);padding-top:10px;color:var(--dim);font-size:.85rem}
@media (max-width:860px){.narrow{display:block;max-width:560px}.wide{display:none}}
@media (max-width:640px){main{padding:14px 12px 48px}h2{margin-top:34px}
.verdict{padding:12px 14px}.verdict p.said{font-size:1.1rem}.facts{grid-template-columns:repeat(2,minmax(0,1fr))}
.conditions{grid-template-columns:minmax(0,1fr)}.conditions dt{margin-top:6px}}
@media print{main{max-width:none;padding:0}figure,.verdict,tr{break-inside:avoid}.scroll{overflow:visible}}
"""
