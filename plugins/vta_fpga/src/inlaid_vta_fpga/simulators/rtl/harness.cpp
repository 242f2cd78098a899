// DRAM model and C interface of the verilated core (vta.sv).
//
// Reads: requests queue up; the first of a busy period waits for LATENCY cycles, then bursts are served in order, one 8-byte beat per
// cycle, until the queue is empty. Writes use a separate channel without latency; the response comes RESPONSE cycles after the
// last beat. Source: VTAMemDPIToAXI of apache/tvm-vta, hardware/chisel (2022-01).

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>

#include "Vvta.h"
#include "verilated.h"

namespace {

constexpr int LATENCY = 16;
constexpr int RESPONSE = 2;
constexpr size_t QUEUE = 256;      // requests
constexpr int IDLE_CYCLES = 64;    // of a deadlock
constexpr uint64_t PAGE = 4096;    // page 0 is invalid
constexpr uint64_t BEAT = 8;

enum Status { RUNNING, DONE, RULE, ADDRESS, DEADLOCK };

struct Read {
    uint64_t address;
    unsigned beats, client;
};

}  // namespace

// Mirrored by device.py.
struct Progress {
    uint64_t cycles, gemm, reset, alu, read_beats, write_beats, address;
    uint32_t dispatched, completed[3];  // completed: by load, compute, store
    int32_t rule, module;               // of Status RULE; `module` of ADDRESS too: 0 fetch, 1 load, 2 compute, 3 store
};

struct Device {
    VerilatedContext context;
    std::unique_ptr<Vvta> core;
    uint8_t *dram;
    uint64_t size;
    Progress progress{};
    std::deque<Read> reads;
    bool serving = false;
    int delay = 0, response = 0, idle = 0;
    uint64_t write_address = 0;
    unsigned write_left = 0;

    Device(uint8_t *memory, uint64_t bytes) : dram(memory), size(bytes) {
        context.randReset(2);  // SRAM and registers start with random contents
        context.randSeed(1);
        core = std::make_unique<Vvta>(&context);
    }

    bool legal(uint64_t address, uint64_t beats) const {
        return address >= PAGE && address <= size && beats * BEAT <= size - address;
    }

    Status fail(uint64_t address, int module) {
        progress.address = address;
        progress.module = module;
        return ADDRESS;
    }

    void edge() {
        core->clk = 1;
        core->eval();
        core->clk = 0;
    }

    void launch(uint64_t address, uint32_t count) {
        core->rst = 1;
        core->read_ready = core->write_ready = 1;
        core->clk = 0;
        for (int cycle = 0; cycle < 4; ++cycle) {
            core->eval();
            edge();
        }
        core->rst = 0;
        core->start = 1;
        core->start_address = address;
        core->start_count = count;
    }

    // One clock cycle. Inputs of the core are registers of the DRAM model: they change after the rising edge.
    Status cycle() {
        core->eval();
        if (core->done) return DONE;
        if (core->rule) {
            progress.rule = core->rule;
            progress.module = core->rule_module;
            return RULE;
        }
        idle = core->busy ? 0 : idle + 1;
        if (idle == IDLE_CYCLES) return DEADLOCK;
        progress.gemm += core->gemm_issued;
        progress.reset += core->reset_issued;
        progress.alu += core->alu_issued;

        if (core->read_valid && core->read_ready) {
            static constexpr int modules[] = {0, 2, 1, 2};  // of clients
            const Read read{core->read_address, core->read_beats, core->read_client};
            if (!legal(read.address, read.beats)) return fail(read.address, modules[read.client]);
            reads.push_back(read);
        }
        uint64_t value = 0;
        unsigned client = 0;
        bool valid = false, last = false;
        if (!reads.empty()) {
            if (!serving) {
                serving = true;
                delay = LATENCY;
            }
            if (delay) {
                --delay;
            } else {
                Read &read = reads.front();
                valid = true;
                client = read.client;
                std::memcpy(&value, dram + read.address, BEAT);
                read.address += BEAT;
                last = --read.beats == 0;
                if (last) reads.pop_front();
                serving = !reads.empty();
                ++progress.read_beats;
            }
        }
        const bool responds = response == 1;
        if (response) --response;
        if (core->write_valid) {
            write_address = core->write_address;
            write_left = core->write_beats;
            if (!legal(write_address, write_left)) return fail(write_address, 3);
        }
        if (core->write_data_valid && write_left) {
            const uint64_t data = core->write_data;
            std::memcpy(dram + write_address, &data, BEAT);
            write_address += BEAT;
            if (--write_left == 0) response = RESPONSE - 1;
            ++progress.write_beats;
        }

        edge();
        core->start = 0;
        core->return_valid = valid;
        core->return_last = last;
        core->return_client = client;
        core->return_data = value;
        core->read_ready = reads.size() < QUEUE;
        core->write_response = responds;
        ++progress.cycles;
        return RUNNING;
    }
};

extern "C" {

// Create a core in reset with `bytes` of DRAM, ready to run `count` instructions at `address`.
Device *vta_create(uint8_t *dram, uint64_t bytes, uint64_t address, uint32_t count) {
    Device *device = new Device(dram, bytes);
    device->launch(address, count);
    return device;
}

// Run for at most `cycles` and return the Status. Call again only if it is RUNNING.
int32_t vta_run(Device *device, uint64_t cycles, Progress *progress) {
    Status status = RUNNING;
    for (uint64_t cycle = 0; cycle < cycles && status == RUNNING; ++cycle) status = device->cycle();
    device->progress.dispatched = device->core->dispatched;
    device->progress.completed[0] = device->core->completed_load;
    device->progress.completed[1] = device->core->completed_compute;
    device->progress.completed[2] = device->core->completed_store;
    *progress = device->progress;
    return status;
}

void vta_destroy(Device *device) {
    device->core->final();
    delete device;
}
}
