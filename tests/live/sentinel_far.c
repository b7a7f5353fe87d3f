/* SPDX-License-Identifier: MIT
 * sentinel_far.c - Sentinels that are far away, or slow: they are heard all the same.
 */
#include "harness/fleet.h"
#include "harness/live.h"
#include "harness/proxy.h"

/* The way to a connection is one round trip here, for the password; it takes longer than one of
 * them is waited for while there may be others. */
TEST(sentinels_whose_login_takes_long_are_heard)
{
    enum { ONE_WAY_MS = 135 };
    struct fleet *f = fleet_start(&(struct fleet_opts){ .sentinel_pass = "pw" });
    struct proxy *p[FLEET];
    const char *hosts = "";
    for (int i = 0; i < FLEET; i++) {
        p[i] = proxy_start_tcp(f->sentinel[i]);
        proxy_delay(p[i], ONE_WAY_MS);
        hosts = keep_text("%s%s%s", hosts, i ? "," : "", proxy_url(p[i]) + strlen("redis://"));
    }
    setenv("HOLDFAST_SENTINEL_PASSWORD", "pw", 1);
    hf_client *c = client_at(keep_text("redis+sentinel://%s/m", hosts), 20000);
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    unlock_now(m);
    int delayed = 0;
    for (int i = 0; i < FLEET; i++)
        delayed += proxy_delayed(p[i]) > 0;
    CHECK(delayed >= 2); /* a majority */
    hf_lock_free(m);
    hf_client_free(c);
}
