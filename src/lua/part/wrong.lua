-- SPDX-License-Identifier: MIT
-- an error of the server inside a script: data of another kind becomes {code}, the rest is reported
local function wrong(e, code)
  if string.find(e.err, 'WRONGTYPE') or string.find(e.err, 'integer')
    or string.find(e.err, 'overflow') then
    return {code}
  end
  return e
end
