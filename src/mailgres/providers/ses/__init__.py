"""Amazon SES. Imports nothing: boto3 is loaded when it is used."""
