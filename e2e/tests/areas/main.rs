//! Physical areas: files and devices behind the pool, added and removed while the program runs, full, broken and
//! refused.

use std::process::ExitCode;

use vswap_e2e::run_suite;
use vswap_e2e::suite::Test;

mod blocks;
mod breaks;
mod direct;
mod far;
mod far_moved;
mod far_network;
mod frozen;
mod merged;
mod groups;
mod live;
mod moving;
mod packed;
mod refused;
mod repacked;
mod secrets;
mod tiers;
mod used;

const TESTS: &[Test] = &[
    Test::new("pool_and_areas", 180, used::pool_and_areas),
    Test::new("areas_without_a_pool", 180, used::areas_without_a_pool),
    Test::new("private_file", 120, used::private_file),
    Test::new("priorities", 120, used::priorities),
    Test::new("every_backing", 120, moving::every_backing),
    Test::new("cold_pages_go_first", 180, moving::cold_pages_go_first),
    Test::new("tiers", 300, moving::tiers),
    Test::new("swapoff_in_the_middle", 180, live::swapoff_in_the_middle),
    Test::new(
        "swapoff_of_the_only_area",
        120,
        live::swapoff_of_the_only_area,
    ),
    Test::new("swapoff_without_room", 120, live::swapoff_without_room),
    Test::new("swapoff_interrupted", 120, live::swapoff_interrupted),
    Test::new("far_store", 120, far::store),
    Test::new("far_store_stopped", 120, far::stopped),
    Test::new("far_copies", 120, far::one_of_three_dies),
    Test::new("far_lost", 120, far::lost),
    Test::new("far_live", 120, far::live),
    Test::new("far_refused", 60, far::refused),
    Test::new("far_promoted", 180, far_network::replica_is_promoted),
    Test::new("far_cut", 180, far_network::is_cut),
    Test::new(
        "far_cut_for_a_minute",
        300,
        far_network::is_cut_for_a_minute,
    )
    .long(),
    Test::new(
        "far_cut_for_too_long",
        240,
        far_network::is_cut_for_too_long,
    )
    .long(),
    Test::new("far_moved", 240, far_moved::hash_slots_are_moved),
    Test::new("blocks_export", 120, blocks::export),
    Test::new("blocks_server_dies", 120, blocks::server_dies),
    Test::new("blocks_altered", 120, blocks::altered),
    Test::new("blocks_live", 120, blocks::live),
    Test::new("blocks_refused", 60, blocks::refused),
    Test::new("no_virtual", 240, direct::no_virtual),
    Test::new("no_virtual_swapoff", 180, direct::no_virtual_swapoff).long(),
    Test::new(
        "no_virtual_swapoff_without_room",
        120,
        direct::no_virtual_swapoff_without_room,
    )
    .long(),
    Test::new(
        "no_virtual_swapoff_interrupted",
        120,
        direct::no_virtual_swapoff_interrupted,
    )
    .long(),
    Test::new("no_virtual_fork", 120, direct::no_virtual_fork),
    Test::new("frozen_memory", 180, frozen::frozen_memory),
    Test::new("merged_pages", 120, merged::merged_pages),
    Test::new("packed_file", 180, packed::more_than_its_size),
    Test::new("packed_again", 120, repacked::cold_pages),
    Test::new("packed_densely", 180, repacked::what_lz4_cannot_hold),
    Test::new("swap_max", 120, groups::swap_max),
    Test::new("tier_limits", 240, tiers::limits),
    Test::new("no_writeback", 120, groups::no_writeback),
    Test::new("group_full", 120, groups::group_full),
    Test::new("full_file_system", 120, breaks::full_file_system),
    Test::new("unreadable_page", 120, breaks::unreadable_page),
    Test::new("areas_are_encrypted", 180, secrets::areas_are_encrypted),
    Test::new(
        "pool_is_in_no_core_dump",
        180,
        secrets::pool_is_in_no_core_dump,
    ),
    Test::new("refused", 60, refused::refused),
    Test::new("held_by_another_run", 60, refused::held_by_another_run),
];

fn main() -> ExitCode {
    run_suite(TESTS)
}
