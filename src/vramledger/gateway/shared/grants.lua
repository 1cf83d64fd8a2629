-- One gateway and the store come to terms about one instance: what it keeps, what it is given, and for how long. docs/shared-state.md has the rules.
--
-- KEYS[1]  a hash: `clock` and `wall` in ms, `run` of the server, `open_at`, `lease_ms`, and `gateway:ID` for each gateway
-- ARGV     "sync" or "leave", ID, number of the call, lease_ms, kept blocks and places, wanted blocks and places, blocks and places of
--          the next request, blocks and places of the instance, blocks and places to spare, its epoch
-- answers  what it may use (blocks, places), its share (blocks, places), what others may use (blocks, places), the instance's (blocks,
--          places), live gateways, ms until grants begin, another epoch that a gateway knows the instance by ("" if none)

local op, me = ARGV[1], ARGV[2]
local number, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4])
local spare = {tonumber(ARGV[13]), tonumber(ARGV[14])}
local epoch = ARGV[15]

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('VRAMLEDGER the key holds a ' .. kind .. ' and not a hash')
end
local stored, gateways = {}, {}
local flat = redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do
  local name, value = flat[i], flat[i + 1]
  local id = string.match(name, '^gateway:(.+)$')
  if id then
    local row = {string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S*)$')}
    if not row[1] or string.len(value) > 400 then
      return redis.error_reply('VRAMLEDGER the record of a gateway cannot be read')
    end
    gateways[id] = {
      number = tonumber(row[1]), ends = tonumber(row[2]), kept = {tonumber(row[3]), tonumber(row[4])},
      want = {tonumber(row[5]), tonumber(row[6])}, next = {tonumber(row[7]), tonumber(row[8])},
      total = {tonumber(row[9]), tonumber(row[10])}, since = tonumber(row[11]), epoch = row[12],
    }
  else
    stored[name] = value
  end
end
for _, name in ipairs({'clock', 'wall', 'open_at', 'lease_ms'}) do
  if stored[name] and not string.match(stored[name], '^%d+$') then
    return redis.error_reply('VRAMLEDGER ' .. name .. ' is not a number')
  end
end

-- The clock never runs faster than the server's, never back, and not on while nobody calls: a server that was away, or whose time was set
-- anew, ends no lease early by more than a step.
local time = redis.call('TIME')
local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local step = math.floor(lease_ms / 4)
local clock = tonumber(stored.clock or 0) + math.max(0, math.min(wall - tonumber(stored.wall or wall), step))

-- Another process than the one that wrote this (a restart, a replica that took over) may have lost the latest of it.
local run = ''
local said = redis.pcall('INFO', 'server')
if type(said) == 'string' then run = string.match(said, 'run_id:(%x+)') or '' end
local open_at = tonumber(stored.open_at or 0)
if not stored.open_at or not stored.clock or stored.run ~= run then open_at = clock + lease_ms end

local live = 0
for id, row in pairs(gateways) do
  if row.ends <= clock and id ~= me then
    gateways[id] = nil
    redis.call('HDEL', KEYS[1], 'gateway:' .. id)
  elseif id ~= me then
    live = live + 1
  end
end
local written = tonumber(stored.lease_ms or lease_ms)
if written ~= lease_ms and live > 0 then
  return redis.error_reply('VRAMLEDGER other gateways have a lease of ' .. written .. ' ms')
end
if live >= 1000 then return redis.error_reply('VRAMLEDGER a thousand gateways have grants') end

local before = gateways[me]
if before and number <= before.number then
  return redis.error_reply('VRAMLEDGER a later call was answered already')
end

local function remember()
  redis.call('HSET', KEYS[1], 'clock', clock, 'wall', wall, 'run', run, 'open_at', open_at, 'lease_ms', lease_ms)
  redis.call('PEXPIRE', KEYS[1], 86400000)
end

local mine = {
  kept = {tonumber(ARGV[5]), tonumber(ARGV[6])}, want = {tonumber(ARGV[7]), tonumber(ARGV[8])},
  next = {tonumber(ARGV[9]), tonumber(ARGV[10])}, total = {tonumber(ARGV[11]), tonumber(ARGV[12])},
  since = before and before.since or 0,
}
gateways[me] = mine
if op == 'leave' and mine.kept[1] == 0 and mine.kept[2] == 0 then
  redis.call('HDEL', KEYS[1], 'gateway:' .. me)
  remember()
  return {0, 0, 0, 0, 0, 0, 0, 0, live, 0, ''}
end

-- Who goes without what its next request needs waits since then; the one that has waited longest has the turn.
local function is_short(row) return row.next[1] > row.kept[1] or row.next[2] > row.kept[2] end
if not is_short(mine) then mine.since = 0 elseif mine.since == 0 then mine.since = clock + 1 end
local names = {}
for id in pairs(gateways) do names[#names + 1] = id end
table.sort(names, function(a, b)
  local x, y = gateways[a].since, gateways[b].since
  if x ~= y then return x ~= 0 and (y == 0 or x < y) end
  return a < b
end)
local turn = gateways[names[1]].since > 0 and names[1] or nil

-- What each would have of `amount`, none more than it wants and otherwise alike; what is left over goes one by one to who waits longest.
local function divided(amount, which, without)
  local rows, shares = {}, {}
  for place, id in ipairs(names) do
    if id ~= without then rows[#rows + 1] = {id = id, want = gateways[id].want[which], place = place} end
  end
  table.sort(rows, function(a, b) return a.want < b.want or (a.want == b.want and a.place < b.place) end)
  for i, row in ipairs(rows) do
    local count = #rows - i + 1
    local level = math.floor(amount / count)
    if row.want > level then
      local rest, over = {}, amount - level * count
      for j = i, #rows do rest[#rest + 1] = rows[j] end
      table.sort(rest, function(a, b) return a.place < b.place end)
      for j, other in ipairs(rest) do shares[other.id] = level + (j <= over and 1 or 0) end
      break
    end
    shares[row.id] = row.want
    amount = amount - row.want
  end
  return shares
end

local share, others, total = {}, {}, {}
for which = 1, 2 do
  total[which], others[which] = 0, 0
  for id, row in pairs(gateways) do
    if row.total[which] > 0 and (total[which] == 0 or row.total[which] < total[which]) then total[which] = row.total[which] end
    if id ~= me then others[which] = others[which] + row.kept[which] end
  end
  local shares = divided(total[which], which, nil)
  local unwanted = total[which]
  for _, row in pairs(gateways) do unwanted = unwanted - row.want[which] end
  if turn then
    local needed = math.min(gateways[turn].next[which], total[which])
    if shares[turn] < needed then
      shares = divided(total[which] - needed, which, turn)
      shares[turn] = needed
    end
  end
  share[which] = shares[me] + math.max(0, math.min(spare[which], math.floor(unwanted / #names)))
  -- More is held than there is (a gateway came back with requests that outlived its lease, or the instance is smaller now): nobody takes up
  -- again what ends until that is paid.
  local rest = total[which] - others[which]
  if mine.kept[which] > rest then share[which] = math.max(0, math.min(share[which], rest)) end
end
if clock >= open_at and op == 'sync' then
  for which = 1, 2 do
    local free = total[which] - others[which] - mine.kept[which]
    mine.kept[which] = mine.kept[which] + math.max(0, math.min(free, share[which] - mine.kept[which]))
  end
end
if not is_short(mine) then mine.since = 0 end

local other_epoch = ''
for _, id in ipairs(names) do
  local seen = gateways[id].epoch
  if id ~= me and seen ~= '' and seen ~= epoch then other_epoch = seen end
end
redis.call('HSET', KEYS[1], 'gateway:' .. me, string.format('%d %d %d %d %d %d %d %d %d %d %d %s', number, clock + lease_ms,
  mine.kept[1], mine.kept[2], mine.want[1], mine.want[2], mine.next[1], mine.next[2], mine.total[1], mine.total[2], mine.since, epoch))
remember()
return {mine.kept[1], mine.kept[2], share[1], share[2], others[1], others[2], total[1], total[2], live + 1,
  math.max(0, open_at - clock), other_epoch}
