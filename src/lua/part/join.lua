-- SPDX-License-Identifier: MIT
-- stand in the queue: where one stood before, or behind all others. The ticket; or nil and the
-- error
local function join(member, old_ticket)
  local ticket, e = tonumber(redis.call('ZSCORE', queue, member) or old_ticket), nil
  if ticket == 0 then
    ticket, e = number()
    if not ticket then return nil, e end
  end
  redis.call('ZADD', queue, string.format('%.0f', ticket), member)
  redis.call('PEXPIRE', queue, 60000)
  return ticket
end
