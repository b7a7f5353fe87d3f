/* SPDX-License-Identifier: MIT
 * url.c - fuzz: any text is parsed or refused, and the password is never shown.
 */
#include "net/url.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A password planted into the text where it surely is one. */
static void check_planted(const char *head, const char *tail)
{
    size_t size = strlen(head) + strlen(tail) + 40;
    char *text = malloc(size);
    struct url *u = NULL;
    hf_error e = { 0 };

    if (!text)
        abort();
    strcpy(text, head);
    strcat(text, "://u:S3CR3T@");
    strcat(text, tail);
    hf_err err = url_parse(text, &u, &e);
    char *shown = url_redact(text);
    if (!shown || strstr(shown, "S3CR3T") || (err && strstr(e.message, "S3CR3T")))
        abort();
    mem_free(shown);
    url_free(u);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct url *u = NULL, *again = NULL;
    hf_error e = { 0 };
    int64_t ms;

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    hf_err err = url_parse(text, &u, &e);
    if ((err == HF_OK) != (u != NULL) || (err && (err != HF_ECONFIG || !e.message[0])))
        abort();
    char *shown = url_redact(text);
    if (!shown)
        abort();
    /* What is shown of a good URL is a good URL. */
    if (u && url_parse(shown, &again, NULL) != HF_OK)
        abort();
    if (again && (again->nhosts != u->nhosts || again->topology != u->topology
                  || again->db != u->db))
        abort();
    url_free(again);
    url_free(u);
    mem_free(shown);
    if (!strstr(text, "S3CR3T")) {
        size_t head = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+");
        check_planted("redis", text);
        if (strncmp(text + head, "://", 3) == 0) {
            text[head] = '\0';
            check_planted(text, text + head + 3);
            text[head] = ':';
        }
    }
    if (hf_duration_parse(text, &ms, NULL) == HF_OK && ms < 0)
        abort();
    free(text);
    return 0;
}
