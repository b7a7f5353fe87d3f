-- SPDX-License-Identifier: MIT
-- past: some entries of a lock's log, the newest first.
-- KEYS 1 log
-- ARGV 1 the newest to be told, '+' or '(ID'  2 how many at most
-- Returns {server time in ms, {ID, {name, value, ...}}, ...}   {-3} the key holds something else
local t = redis.call('TIME')
local found = redis.pcall('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', ARGV[2])
if found.err then
  if string.find(found.err, 'WRONGTYPE') then return {-3} end
  return found
end
table.insert(found, 1, t[1] * 1000 + math.floor(t[2] / 1000))
return found
