-- SPDX-License-Identifier: MIT
-- recall: what a session's record says, however much somebody put there.
-- KEYS 1 record
-- ARGV the fields
-- Returns field, value, ... of those that are there and not longer than 1024 bytes
local found = {}
for _, field in ipairs(ARGV) do
  local length = redis.pcall('HSTRLEN', KEYS[1], field)
  if type(length) == 'number' and length > 0 and length <= 1024 then
    found[#found + 1] = field
    found[#found + 1] = redis.call('HGET', KEYS[1], field)
  end
end
return found
