import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.List;

/** What Java programs do with files: text, channels, maps, locks, moves. */
class FilesOfJava {
    public static void main(String[] arguments) throws Exception {
        Path directory = Files.createDirectories(Path.of("deep", "er"));
        Path text = Files.writeString(directory.resolve("text"), "first\n");
        Files.writeString(text, "second\n", StandardOpenOption.APPEND);
        System.out.println(Files.readAllLines(text) + " " + Files.size(text));
        try (RandomAccessFile file = new RandomAccessFile("random", "rw")) {
            file.setLength(100_000);
            file.seek(5000);
            file.writeLong(42);
            FileChannel channel = file.getChannel();
            try (var lock = channel.lock()) {
                channel.write(ByteBuffer.wrap("hello".getBytes()), 99_990);
                System.out.println(lock.isValid());
            }
            var map = channel.map(FileChannel.MapMode.READ_WRITE, 0, channel.size());
            map.put(10, (byte) 7);
            System.out.println(map.getLong(5000) + " " + map.get(99_990));
        }
        Files.move(text, Path.of("moved"), StandardCopyOption.ATOMIC_MOVE);
        Files.copy(Path.of("random"), Path.of("copy"));
        Files.delete(directory);
        try (var names = Files.walk(Path.of("."))) {
            List<String> found = names.map(Path::toString).sorted().toList();
            System.out.println(found);
        }
    }
}
