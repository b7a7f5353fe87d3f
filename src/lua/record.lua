-- SPDX-License-Identifier: MIT
-- record: who a session is and since when it holds what, for whoever looks. Decides nothing.
-- KEYS 1 record
-- ARGV 1 ttl ms  2 number of identity fields, then that many name, value pairs,
--      then sequence number, age in ms of each lock held, its lease or '' of one waited for
-- Returns 1
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local fields, at = {}, 3
for _ = 1, tonumber(ARGV[2]) do
  fields[#fields + 1] = ARGV[at]
  fields[#fields + 1] = ARGV[at + 1]
  at = at + 2
end
while ARGV[at + 2] do
  fields[#fields + 1] = 'since:' .. ARGV[at]
  fields[#fields + 1] = string.format('%.0f', now - tonumber(ARGV[at + 1]))
  if ARGV[at + 2] ~= '' then
    fields[#fields + 1] = 'lease:' .. ARGV[at]
    fields[#fields + 1] = ARGV[at + 2]
  end
  at = at + 3
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
