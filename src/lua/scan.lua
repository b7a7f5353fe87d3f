-- SPDX-License-Identifier: MIT
-- scan: one step of SCAN, without keys that are too long to be a lock's.
-- KEYS 1 any key of this server
-- ARGV 1 cursor  2 pattern  3 longest key
-- Returns {next cursor, keys}
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 500)
local keys = {}
for _, key in ipairs(step[2]) do
  if #key <= tonumber(ARGV[3]) then keys[#keys + 1] = key end
end
return {step[1], keys}
