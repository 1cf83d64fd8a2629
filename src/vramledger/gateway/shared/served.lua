-- What tenants were let in with at an instance, by all of its gateways, since somebody first wrote it down.
--
-- KEYS[1]  a hash: line and tenant, tokens
-- ARGV     line and tenant, tokens that one gateway let in since its last call; as often as there are any
-- answers  all of the hash; nothing once it has been begun anew because it had grown too long

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('VRAMLEDGER the key holds a ' .. kind .. ' and not a hash')
end
for i = 1, #ARGV, 2 do redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1]) end
if redis.call('HLEN', KEYS[1]) > 8192 then
  redis.call('DEL', KEYS[1])
  return {}
end
redis.call('PEXPIRE', KEYS[1], 86400000)
return redis.call('HGETALL', KEYS[1])
