-- let_go: a token holds nothing on this server of a quorum any more. There is no queue to pass it on.
-- KEYS 1 lock  2 own  3 tombstones
-- ARGV 1 token  2 how long to remember it, ms; 0: no copy of its requests is under way
--      3 caller-chosen owner id or ''
-- Returns 1 it held the lock  0 it did not
local lock, own, owner = KEYS[1], KEYS[2], ARGV[3]
local mine = ARGV[1] .. ':'
--#include part/entomb.lua
local function begins(key)
  local v = redis.pcall('GETRANGE', key, 0, #mine - 1)
  if type(v) == 'table' and not string.find(v.err, 'WRONGTYPE') then error(v) end
  return v == mine
end
local held = begins(owner == '' and lock or own)
if held and owner ~= '' then
  redis.call('DEL', own)
  if redis.pcall('GETRANGE', lock, 0, #owner) == owner then redis.call('DEL', lock) end
elseif held then
  redis.call('DEL', lock)
end
if ARGV[2] ~= '0' then entomb(KEYS[3], ARGV[1], tonumber(ARGV[2])) end
return held and 1 or 0
