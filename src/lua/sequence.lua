-- SPDX-License-Identifier: MIT
-- sequence: take the next block of ids.
-- KEYS 1 counter: the largest id given
-- ARGV 1 how many  2 the first id there ever was  3 the largest id that the caller has seen
--      4 '1': no id below the server's time in microseconds
-- Returns {first, last}   {-3} not a counter   {-4, largest given} there are not so many left
-- The counter only rises: not below what was given, nor what the caller has seen. A request that
-- arrives twice takes two blocks, and one of them is a gap.
local function whole(n) return string.format('%.0f', n) end
local given = redis.pcall('GETRANGE', KEYS[1], 0, 31)
if type(given) == 'table' then
  if string.find(given.err, 'WRONGTYPE') then return {-3} end
  return given
end
if given == '' and redis.call('EXISTS', KEYS[1]) == 1 then return {-3} end
if given == '' then given = whole(tonumber(ARGV[2]) - 1) end
local n = tonumber(given)
if not string.match(given, '^%d+$') or n > 9007199254740991 or whole(n) ~= given then
  return {-3}
end
n = math.max(n, tonumber(ARGV[3]))
if ARGV[4] == '1' then
  local t = redis.call('TIME')
  n = math.max(n, t[1] * 1000000 + t[2])
end
local last = n + tonumber(ARGV[1])
if last > 9007199254740991 then return {-4, whole(n)} end
redis.call('SET', KEYS[1], whole(last))
return {n + 1, last}
