-- SPDX-License-Identifier: MIT
-- a lock without a ttl would be held for ever: whoever waits for it, and may, gives it one. Only
-- what can be a lock: a short string that is no latch and no barrier, under a name that is nobody's
-- counter or record. What is left then, ms; -1 when it was left as it is.
local function mend(value, ms)
  if string.find(lock, 'holdfast:', 1, true) or string.find(value, '^latch%.')
    or string.find(value, '^barrier%.') or redis.call('GETRANGE', lock, 512, 512) ~= '' then
    return -1
  end
  redis.call('PEXPIRE', lock, ms)
  return ms
end
