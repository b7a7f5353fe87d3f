-- SPDX-License-Identifier: MIT
-- guard: accept a fencing number only if no larger one has been seen, and write under its cover.
-- KEYS 1 newest number seen [2 key to write]
-- ARGV 1 fencing number [2 value]
-- Returns 1 accepted  {-1, newest} refused: nothing was written
--         {-3} the guard key holds something else
-- Numbers are compared as text: exact, however many digits a caller sends.
local seen = redis.pcall('GETRANGE', KEYS[1], 0, 31)
if seen == '' then seen = nil end
if type(seen) == 'table' and not string.find(seen.err, 'WRONGTYPE') then return seen end
if type(seen) == 'table' or (seen and (#seen > 20 or not string.match(seen, '^%d+$'))) then
  return {-3}
end
local n = ARGV[1]
if seen and (#n < #seen or (#n == #seen and n < seen)) then return {-1, seen} end
if n ~= seen then redis.call('SET', KEYS[1], n) end
if KEYS[2] then redis.call('SET', KEYS[2], ARGV[2]) end
return 1
