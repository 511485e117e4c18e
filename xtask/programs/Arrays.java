// A JVM: a map of arrays that are read again and again, the first of them most often, and some replaced.
import java.util.HashMap;
import java.util.Random;

public class Arrays {
    static final int ARRAYS = 500_000;
    static final int READS = 12_000_000;

    static long[] made(Random chance) {
        long[] array = new long[64];
        for (int at = 0; at < 24; at++) {
            array[at] = chance.nextLong();
        }
        return array;
    }

    public static void main(String[] words) {
        Random chance = new Random(7);
        HashMap<Integer, long[]> arrays = new HashMap<>();
        for (int number = 0; number < ARRAYS; number++) {
            arrays.put(number, made(chance));
        }
        long total = 0;
        for (int read = 0; read < READS; read++) {
            double part = chance.nextDouble();
            int number = (int) (ARRAYS * part * part * part);
            total += arrays.get(number)[read % 64];
            if (read % 64 == 0) {
                arrays.put(number, made(chance));
            }
        }
        System.out.println(total);
    }
}
