/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Removes identifying data from a gathered machine. Stand-ins are numbered in the order of the
 * files, so that equal values stay equal. They keep the kind (link-local, IPv4, width), which the
 * checks use. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/capture/gather.h"
#include "topo/reader.h"

struct seen {
    char **value;
    int n;
};

struct redact {
    struct seen macs, gids, guids, uuids, serials;
    unsigned flags;
};

/* Returns the number of a value, from 1. Negative if memory is short. */
static int number_of(struct seen *seen, const char *value)
{
    char **slot;

    for (int i = 0; i < seen->n; i++)
        if (strcmp(seen->value[i], value) == 0)
            return i + 1;
    slot = pvn_topo_array_add((void **)&seen->value, &seen->n, sizeof(*slot));
    if (!slot)
        return -ENOMEM;
    *slot = strdup(value);
    if (!*slot) {
        seen->n--;
        return -ENOMEM;
    }
    return seen->n;
}

static void seen_free(struct seen *seen)
{
    for (int i = 0; i < seen->n; i++)
        free(seen->value[i]);
    free(seen->value);
}

static int set_text(struct pvn_topo_record *r, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(r->data);
    r->data = copy;
    r->len = strlen(copy);
    return 0;
}

static bool ends_with(const char *text, const char *with)
{
    size_t n = strlen(text), m = strlen(with);

    return n >= m && strcmp(text + n - m, with) == 0;
}

/* True for a value of only zeros and separators, which needs no stand-in. */
static bool all_zero(const char *text)
{
    return !strpbrk(text, "123456789abcdefABCDEF");
}

/* Replaces the value's hex digits from the right by those of the number, the other digits by
 * '0'. */
static void put_number(char *text, size_t keep, int number)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = strlen(text); i-- > keep;) {
        if (strchr(digits, text[i]) || (text[i] >= 'A' && text[i] <= 'F')) {
            text[i] = digits[number & 15];
            number >>= 4;
        }
    }
}

static int redact_value(struct pvn_topo_record *r, struct seen *seen, size_t keep)
{
    int number;

    pvn_topo_clean_text(r->data);
    if (all_zero(r->data) || strlen(r->data) < keep)
        return 0;
    number = number_of(seen, r->data);
    if (number < 0)
        return number;
    put_number(r->data, keep, number);
    r->len = strlen(r->data);
    return 0;
}

/* Keeps the prefix that shows the kind (fe80::/64, ::ffff:0:0/96). A global address becomes one of
 * 2001:db8::/32, which is reserved for documentation. */
static int redact_gid(struct redact *x, struct pvn_topo_record *r)
{
    static const char mapped[] = "0000:0000:0000:0000:0000:ffff:";
    static const char local[] = "fe80:0000:0000:0000:";
    size_t keep = 0;
    int rc;

    if (strncmp(r->data, mapped, sizeof(mapped) - 1) == 0)
        keep = sizeof(mapped) - 1;
    else if (strncmp(r->data, local, sizeof(local) - 1) == 0)
        keep = sizeof(local) - 1;
    rc = redact_value(r, &x->gids, keep);
    if (rc == 0 && r->len == 39 && !all_zero(r->data)) {
        if (keep == 0)
            memcpy(r->data, "2001:0db8", 9);
        else if (keep == sizeof(mapped) - 1)
            memcpy(r->data + keep, "0a", 2); /* 10.0.0.0/8 */
    }
    return rc;
}

/* Replaces the value after "key" of a line in place. */
static int redact_line(struct seen *seen, struct pvn_topo_record *r, const char *key)
{
    char *at = strstr(r->data, key), *end, kept;
    int number;

    if (!at)
        return 0;
    at += strlen(key);
    at += strspn(at, " \t");
    end = at + strcspn(at, "\n");
    kept = *end;
    *end = '\0';
    number = number_of(seen, at);
    if (number > 0)
        put_number(at, strncmp(at, "GPU-", 4) == 0 ? 4 : 0, number);
    *end = kept;
    return number < 0 ? number : 0;
}

static uint32_t le32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;

    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Clears the Device Serial Number capability (id 3): header, then eight bytes. */
static int redact_config(struct redact *x, struct pvn_topo_record *r)
{
    size_t at = 256;

    for (int steps = 0; at >= 256 && at + 12 <= r->len && steps < 480; steps++) {
        uint32_t header = le32(r->data + at);

        if ((header & 0xffff) == 3) {
            char text[24];
            int number;

            snprintf(text, sizeof(text), "%08x%08x", le32(r->data + at + 8),
                     le32(r->data + at + 4));
            number = number_of(&x->serials, text);
            if (number < 0)
                return number;
            memset(r->data + at + 4, 0, 8);
            memcpy(r->data + at + 4,
                   (const unsigned char[]){(unsigned char)number, (unsigned char)(number >> 8)}, 2);
        }
        at = header >> 20 & ~3u;
    }
    return 0;
}

/* Keeps only the words that the model uses. */
static int redact_cmdline(struct pvn_topo_record *r)
{
    char *out = calloc(1, r->len + 2), *save = NULL;
    int rc;

    if (!out)
        return -ENOMEM;
    for (char *word = strtok_r(r->data, " \t\n", &save); word;
         word = strtok_r(NULL, " \t\n", &save)) {
        if (pvn_topo_cmdline_word_kept(word)) {
            strcat(out, word);
            strcat(out, " ");
        }
    }
    rc = set_text(r, out);
    free(out);
    return rc;
}

/* Keeps all lines of the first processor, and of the others only those that are counted. */
static int redact_cpuinfo(struct pvn_topo_record *r)
{
    char *out = calloc(1, r->len + 2), *save = NULL, *at;
    int processors = 0, rc;

    if (!out)
        return -ENOMEM;
    at = out;
    for (char *line = strtok_r(r->data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        processors += strncmp(line, "processor", 9) == 0;
        if (strncmp(line, "Serial", 6) == 0)
            continue; /* on Arm boards */
        if (processors <= 1 || strncmp(line, "processor", 9) == 0 ||
            strncmp(line, "physical id", 11) == 0)
            at += sprintf(at, "%s\n", line);
    }
    rc = set_text(r, out);
    free(out);
    return rc;
}

/* Keeps "Linux version RELEASE" and drops where and by whom it was built. */
static int redact_version(struct pvn_topo_record *r)
{
    char text[256] = "", release[128];

    if (sscanf(r->data, "Linux version %127s", release) == 1)
        snprintf(text, sizeof(text), "Linux version %s\n", release);
    return set_text(r, text);
}

static int redact_one(struct redact *x, struct pvn_topo_record *r)
{
    bool keep = (x->flags & PVN_TOPO_GATHER_KEEP_ADDRESSES) != 0;

    if (strcmp(r->path, "/proc/cmdline") == 0)
        return redact_cmdline(r);
    if (strcmp(r->path, "/proc/cpuinfo") == 0)
        return redact_cpuinfo(r);
    if (strcmp(r->path, "/proc/version") == 0)
        return redact_version(r);
    if (keep)
        return 0;
    if (strstr(r->path, "/net/") && ends_with(r->path, "/address"))
        return redact_value(r, &x->macs, 0);
    if (strstr(r->path, "/infiniband/") &&
        (ends_with(r->path, "/node_guid") || ends_with(r->path, "/sys_image_guid")))
        return redact_value(r, &x->guids, 0);
    if (strstr(r->path, "/gids/"))
        return redact_gid(x, r);
    if (ends_with(r->path, "/config"))
        return redact_config(x, r);
    if (ends_with(r->path, "/information"))
        return redact_line(&x->uuids, r, "GPU UUID:");
    return 0;
}

int pvn_topo_redact(struct pvn_topo_record **records, int n, unsigned flags)
{
    struct redact x = {.flags = flags};
    int rc = 0;

    for (int i = 0; rc == 0 && i < n; i++)
        if (records[i]->type == PVN_TOPO_FS_FILE && records[i]->len > 0)
            rc = redact_one(&x, records[i]);
    seen_free(&x.macs);
    seen_free(&x.gids);
    seen_free(&x.guids);
    seen_free(&x.uuids);
    seen_free(&x.serials);
    return rc;
}
