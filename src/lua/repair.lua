-- SPDX-License-Identifier: MIT
-- repair: put a fencing counter aside that is none, and begin a new one.
-- KEYS 1 fencing counter  2 reign  3 where the old one goes
-- Returns 0 it is usable: nothing was done   1 repaired
-- No number was ever more than a minute ahead of the time; so the new one begins above them all.
-- Repeated, it finds the new counter, and does nothing.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then return 0 end
if kind == 'string' then
  local text = redis.call('GETRANGE', KEYS[1], 0, 31)
  if string.match(text, '^%-?%d+$') and tonumber(text) < 9007199254740000 then return 0 end
end
redis.call('RENAME', KEYS[1], KEYS[3])
local t = redis.call('TIME')
redis.call('SET', KEYS[1], string.format('%.0f', (t[1] + 60) * 1000000 + t[2]))
redis.call('DEL', KEYS[2])
return 1
