/* SPDX-License-Identifier: MIT
 * exitcode.c - library results to exit statuses, and the table of --help.
 *
 * 64 to 78 are those of sysexits(3), so that "busy", "unreachable" and "not allowed" can be told
 * apart by whoever called; 79 to 82 lie between them and the 124 to 127 of timeout(1) and sh(1). */
#include "exitcode.h"

static const struct {
    hf_err err;
    int    code;
} map[] = {
    { HF_OK,        EX_OKAY      },
    { HF_EBUSY,     EX_BUSY      },
    { HF_ETIMEDOUT, EX_BUSY      },
    { HF_ECONFLICT, EX_BUSY      },
    { HF_ENOTSET,   EX_BUSY      },
    { HF_ELOST,     EX_LOST      },
    { HF_EBROKEN,   EX_LOST      },
    { HF_ENOTHELD,  EX_BUG       },
    { HF_EUNSURE,   EX_SERVER    },
    { HF_ECONN,     EX_SERVER    },
    { HF_EPROTO,    EX_SERVER    },
    { HF_ESERVER,   EX_SERVER    },
    { HF_ENOQUORUM, EX_SERVER    },
    { HF_EREPLICAS, EX_SERVER    },
    { HF_EAUTH,     EX_LOGIN     },
    { HF_ECONFIG,   EX_SETTINGS  },
    { HF_ETYPE,     EX_SETTINGS  },
    { HF_ECOUNTER,  EX_SETTINGS  },
    { HF_ENOTSUP,   EX_SETTINGS  },
    { HF_EINVAL,    EX_USE       },
    { HF_ELIMIT,    EX_USE       },
    { HF_ENOMEM,    EX_SYSTEM    },
    { HF_ESYS,      EX_SYSTEM    },
    { HF_EFORK,     EX_BUG       },
    { HF_ECANCELED, EX_BUG       },
    { HF_ENOTOWNER, EX_NOT_OWNER },
    { HF_ESTALE,    EX_NOT_OWNER },
    { HF_EDEADLK,   EX_DEADLOCK  },
};

static const struct {
    const char *code;
    const char *text;
} table[] = {
    { "0",     "success; for run, CMD's own status; skipped with --skip-ok" },
    { "1",     "held, ask: nobody holds it" },
    { "64",    "usage" },
    { "69",    "server unreachable, or it gave no usable answer" },
    { "70",    "internal error" },
    { "71",    "the operating system refused (memory, processes, descriptors)" },
    { "74",    "the output could not be written" },
    { "75",    "busy, or waited in vain (-E changes it)" },
    { "77",    "login or permission refused by the server" },
    { "78",    "bad configuration, or the key holds data that is not a lock" },
    { "79",    "lock lost, CMD stopped; barrier broken, latch reset" },
    { "80",    "--max-run passed, CMD stopped" },
    { "81",    "deadlock" },
    { "82",    "not the owner, or the fence moved" },
    { "126",   "CMD cannot run" },
    { "127",   "CMD not found" },
    { "128+N", "ended by signal N" },
};

int exit_code_of(hf_err e)
{
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
        if (map[i].err == e)
            return map[i].code;
    return EX_BUG;
}

void exit_codes_print(FILE *f)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        fprintf(f, "  %-6s %s\n", table[i].code, table[i].text);
}
