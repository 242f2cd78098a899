/* A plugin of QEMU that counts loads and stores, and prints both whenever a timer at 0x40000004 is read. The interface of plugins,
   version 1, is declared here: distributions ship the emulator without its header. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translated_call)(plugin_id id, struct qemu_plugin_tb *block);
typedef void (*access_call)(unsigned int processor, uint32_t access, uint64_t address, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
bool qemu_plugin_mem_is_store(uint32_t access);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, translated_call call);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, access_call call, int registers, int kinds, void *data);

int qemu_plugin_version = 1;

static uint64_t loads, stores;

static void accessed(unsigned int processor, uint32_t access, uint64_t address, void *data) {
    (void)processor, (void)data;
    if (qemu_plugin_mem_is_store(access)) {
        stores++;
    } else {
        loads++;
        if (address == 0x40000004u) fprintf(stderr, "accesses %" PRIu64 " %" PRIu64 "\n", loads, stores);
    }
}

static void translated(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    for (size_t index = 0; index < qemu_plugin_tb_n_insns(block); index++)
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, index), accessed, 0, 3, NULL);
}

int qemu_plugin_install(plugin_id id, const void *machine, int count, char **arguments) {
    (void)machine, (void)count, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
