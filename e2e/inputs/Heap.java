import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A heap of records and blocks: filled, replaced while the collector moves what lives, and verified. */
public class Heap {
    static final int BLOCKS = 60_000;
    static final int BLOCK_BYTES = 4096;
    static final int RECORDS = 600_000;

    static long mix(long seed) {
        long z = seed + 0x9e3779b97f4a7c15L;
        z = (z ^ (z >>> 30)) * 0xbf58476d1ce4e5b9L;
        z = (z ^ (z >>> 27)) * 0x94d049bb133111ebL;
        return z ^ (z >>> 31);
    }

    record Customer(int number, String name, int[] orders) {}

    static byte[] block(int number, int generation) {
        byte[] bytes = new byte[BLOCK_BYTES];
        long value = mix(number * 1_000L + generation);
        for (int i = 0; i < BLOCK_BYTES; i++) {
            bytes[i] = (byte) (i % 512 < 48 ? value >>> (i % 57) : i / 512);
        }
        return bytes;
    }

    static Customer customer(int number) {
        return new Customer(number, "customer-" + number, new int[] {number % 100, number % 10, 0, 1});
    }

    static long verifyBlocks(List<byte[]> blocks, int[] generations) {
        long sum = 0;
        for (int number = 0; number < BLOCKS; number++) {
            if (!Arrays.equals(blocks.get(number), block(number, generations[number]))) {
                throw new IllegalStateException("block " + number + " is wrong");
            }
            sum += blocks.get(number)[number % BLOCK_BYTES];
        }
        return sum;
    }

    static long verifyRecords(Map<Integer, Customer> records) {
        long sum = 0;
        for (int step = 0; step < RECORDS; step++) {
            int number = (int) ((long) step * 7_919 % RECORDS);
            Customer found = records.get(number);
            if (found.number != number || !found.name.equals("customer-" + number)) {
                throw new IllegalStateException("record " + number + " is " + found);
            }
            sum += found.orders[0] * 3L + found.orders[1] + found.orders[3];
        }
        return sum;
    }

    public static void main(String[] args) {
        int[] generations = new int[BLOCKS];
        List<byte[]> blocks = new ArrayList<>();
        for (int number = 0; number < BLOCKS; number++) {
            blocks.add(block(number, 0));
        }
        Map<Integer, Customer> records = new HashMap<>();
        for (int number = 0; number < RECORDS; number++) {
            records.put(number, customer(number));
        }
        System.out.println("filled " + verifyBlocks(blocks, generations) + " " + verifyRecords(records));
        for (int round = 1; round <= 2; round++) {
            for (int number = round; number < BLOCKS; number += 3) {
                generations[number] = round;
                blocks.set(number, block(number, round));
            }
            for (int number = round; number < RECORDS; number += 4) {
                records.put(number, customer(number));
            }
            System.out.println("round " + round + " " + verifyBlocks(blocks, generations));
        }
        System.out.println("records " + verifyRecords(records));
        System.out.println("right");
    }
}
